#include "kernels/cpu_level.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

namespace g2c::kernels {
namespace {

class CpuLevels : public ::testing::Test {
 protected:
  void TearDown() override {
    unsetenv("G2C_CPU_LEVEL");
    force_cpu_level(std::nullopt);
  }
  static void set_environment(const char* value) {
    setenv("G2C_CPU_LEVEL", value, 1);
    force_cpu_level(std::nullopt);  // read it anew
  }
};

TEST_F(CpuLevels, TheBestIsUsedUnlessToldOtherwise) {
  ASSERT_FALSE(supported_cpu_levels().empty());
  set_environment("");
  EXPECT_EQ(cpu_level(), supported_cpu_levels().front());
}

TEST_F(CpuLevels, TheEnvironmentChooses) {
  for (const CpuLevel level : supported_cpu_levels()) {
    set_environment(std::string(cpu_level_name(level)).c_str());
    EXPECT_EQ(cpu_level(), level);
  }
}

TEST_F(CpuLevels, AnUnknownOrMissingLevelIsAnErrorThatNamesTheOnesThere) {
#if defined(__x86_64__)
  const char* const missing = "neon";
#else
  const char* const missing = "avx2";
#endif
  for (const char* const name : {"fast", missing}) {
    set_environment(name);
    try {
      cpu_level();
      FAIL() << name;
    } catch (const std::invalid_argument& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("G2C_CPU_LEVEL"), std::string::npos);
      EXPECT_NE(message.find(name), std::string::npos);
      EXPECT_NE(message.find(cpu_level_name(supported_cpu_levels().front())), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace g2c::kernels
