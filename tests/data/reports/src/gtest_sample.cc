#include <gtest/gtest.h>
TEST(Sample, Passes) { RecordProperty("key", "value"); }
TEST(Sample, Fails) { EXPECT_EQ(1, 2) << "one & two"; EXPECT_TRUE(false); }
TEST(Sample, Skipped) { GTEST_SKIP() << "not today"; }
TEST(Sample, DISABLED_Off) {}
class Numbers : public testing::TestWithParam<int> {};
TEST_P(Numbers, Small) { EXPECT_LT(GetParam(), 2); }
INSTANTIATE_TEST_SUITE_P(All, Numbers, testing::Values(1, 2));
