"""Print what CMake needs to know of the torch wheel: version;abi;library folder;include folders."""

from torch import __version__, compiled_with_cxx11_abi
from torch.utils.cpp_extension import TORCH_LIB_PATH, include_paths

print(";".join([__version__, str(int(compiled_with_cxx11_abi())), TORCH_LIB_PATH, *include_paths()]))
