// SPDX-License-Identifier: Apache-2.0
#include "ir/reference.h"

#include <gtest/gtest.h>

#include "ir/op.h"

namespace hostjit {
namespace {

TEST(Reference, HasASectionPerOp) {
  const std::string page = op_reference();
#define HOSTJIT_EXPECT_SECTION(type)                                                     \
  EXPECT_NE(page.find(concat("## ", type::kInfo.name, "\n\n", type::kInfo.doc, "\n\n")), \
            std::string::npos)                                                           \
      << type::kInfo.name;
  HOSTJIT_FOR_EACH_OP(HOSTJIT_EXPECT_SECTION)
#undef HOSTJIT_EXPECT_SECTION
}

TEST(Reference, SaysWhatTheFieldsAre) {
  const std::string page = op_reference();
  for (const char* row : {
           "| `source` | value | read | required |\n",
           "| `bias` | value or `none` | read | `none` |\n",
           "| `in_out` | list of values | read and written | `[]` |\n",
           "| `offset` | integer |  | `-1` |\n",
           "| `kernel` | string |  | required |\n",
           "| `operation` | one of add, sub, mul, floordiv, ceildiv, mod, min, max |  | required "
           "|\n",
           "| `results` | any number of results | memory that ATen owns |  |\n",
       }) {
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
  EXPECT_NE(page.find("Has an effect of its own"), std::string::npos);
}

TEST(Op, IsMadeByItsName) {
#define HOSTJIT_EXPECT_PAYLOAD(type) \
  EXPECT_TRUE(std::holds_alternative<type>(make_payload(type::kInfo.name)));
  HOSTJIT_FOR_EACH_OP(HOSTJIT_EXPECT_PAYLOAD)
#undef HOSTJIT_EXPECT_PAYLOAD
  EXPECT_THROW(make_payload("allocat"), Error);
}

}  // namespace
}  // namespace hostjit
