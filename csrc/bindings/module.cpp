#include "bindings/casters.h"

namespace g2c::bindings {
namespace {

// Errors from C++ as torch's own bindings give them: ValueError and its kin, without a C++ backtrace.
void translate(std::exception_ptr pointer) {
  const auto raise = [](PyObject* type, const c10::Error& error) { PyErr_SetString(type, error.what_without_backtrace()); };
  try {
    if (pointer) {
      std::rethrow_exception(pointer);
    }
  } catch (const c10::ValueError& error) {
    raise(PyExc_ValueError, error);
  } catch (const c10::TypeError& error) {
    raise(PyExc_TypeError, error);
  } catch (const c10::IndexError& error) {
    raise(PyExc_IndexError, error);
  } catch (const c10::NotImplementedError& error) {
    raise(PyExc_NotImplementedError, error);
  } catch (const c10::OutOfMemoryError& error) {
    raise(PyExc_MemoryError, error);
  } catch (const c10::Error& error) {
    raise(PyExc_RuntimeError, error);
  }
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "g2c's C++ core; the classes that people use stand in front of it, see g2c._module";
  py::register_local_exception_translator(translate);
  bind_slots(m);
  bind_states(m);
  bind_modules(m);
}

}  // namespace g2c::bindings
