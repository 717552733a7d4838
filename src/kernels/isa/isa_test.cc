#include "kernels/isa/isa.h"

#include <gtest/gtest.h>

#include "kernels/isa/isa_testing.h"

namespace kvserve {
namespace {

TEST(Isa, ScalarIsAlwaysAvailableAndLast) {
  ASSERT_FALSE(AvailableIsas().empty());
  EXPECT_EQ(AvailableIsas().back(), "scalar");
}

TEST(Isa, SetIsaTakesEffect) {
  ForEachIsa([] { EXPECT_EQ(UseScalarKernels(), ActiveIsa() == "scalar"); });
}

TEST(Isa, UnknownNameIsRefusedAndChangesNothing) {
  const std::string before(ActiveIsa());
  const auto status = SetIsa("avx9000");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("avx2"), std::string::npos);
  EXPECT_EQ(ActiveIsa(), before);
}

TEST(Isa, TargetOfAnotherArchitectureIsUnsupported) {
#if defined(__x86_64__)
  const auto status = SetIsa("neon");
#else
  const auto status = SetIsa("avx2");
#endif
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace kvserve
