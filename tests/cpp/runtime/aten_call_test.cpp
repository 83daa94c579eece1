// SPDX-License-Identifier: Apache-2.0
#include "runtime/aten_call.h"

#include <torch/library.h>

#include "frame_fixture.h"
#include "runtime/torch_types.h"
#include "support/check.h"

namespace hostjit {
namespace {

Literal lit(bool value) { return {value}; }
Literal lit(int value) { return {int64_t{value}}; }
Literal lit(double value) { return {value}; }
Literal lit(const char* value) { return {std::string(value)}; }
Literal list(std::vector<Literal> values) { return {std::move(values)}; }
Literal symbol(const char* kind, const char* word) { return {Literal::Symbol{kind, word}}; }
Literal operand(int64_t index) { return {Literal::Operand{index}}; }
const Literal none;

TensorSpec spec_of(const at::Tensor& tensor) {
  return {*dtype_from_torch(tensor.scalar_type()), Device{}, tensor.sizes().vec(),
          tensor.strides().vec()};
}

// Calls `target` through a site whose slots have the types of `expected`.
std::vector<at::Tensor> call(const std::string& target, std::vector<Literal> arguments,
                             std::vector<at::Tensor> tensors, std::vector<int64_t> scalars,
                             const std::vector<at::Tensor>& expected) {
  AtenCallSpec spec{.target = target,
                    .arguments = std::move(arguments),
                    .operand_is_tensor = {},
                    .result_slots = {}};
  std::vector<SlotSpec> slots;
  std::vector<void*> operands;
  for (at::Tensor& tensor : tensors) {
    operands.push_back(&tensor);
    spec.operand_is_tensor.push_back(true);
  }
  for (int64_t& scalar : scalars) {
    operands.push_back(&scalar);
    spec.operand_is_tensor.push_back(false);
  }
  for (const at::Tensor& tensor : expected) {
    spec.result_slots.push_back(tensor.defined() ? static_cast<int64_t>(slots.size()) : -1);
    if (tensor.defined()) slots.push_back(call_slot(spec_of(tensor)));
  }
  const AtenCallSite site(spec, slots);
  std::vector<at::Tensor> results(slots.size());
  site.call(operands.data(), [&](int64_t slot, at::Tensor result) { results[slot] = result; });
  return results;
}

void expect_call(const std::string& target, std::vector<Literal> arguments,
                 std::vector<at::Tensor> tensors, const std::vector<at::Tensor>& expected,
                 std::vector<int64_t> scalars = {}) {
  SCOPED_TRACE(target);
  const auto results =
      call(target, std::move(arguments), std::move(tensors), std::move(scalars), expected);
  size_t position = 0;
  for (const at::Tensor& tensor : expected) {
    if (tensor.defined()) {
      EXPECT_TRUE(at::equal(results[position++], tensor));
    }
  }
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(AtenCall, EveryKindOfLiteral) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({4, 6});
  const at::Tensor image = at::randn({1, 2, 3, 3});
  const at::Tensor index = at::tensor({2, 0});

  expect_call("aten::sum.dim_IntList", {operand(0), list({lit(1)}), lit(true), none}, {x},
              {x.sum({1}, true)});
  expect_call("aten::sum.dim_IntList",
              {operand(0), list({lit(0), lit(-1)}), lit(false), symbol("dtype", "f64")}, {x},
              {x.sum({0, 1}, false, at::kDouble)});
  expect_call("aten::sum.dim_IntList", {operand(0), none, lit(false), none}, {x}, {x.sum()});
  expect_call("aten::cat", {list({operand(0), operand(1), operand(0)}), lit(1)}, {x, x + 1},
              {at::cat({x, x + 1, x}, 1)});
  expect_call("aten::index.Tensor", {operand(0), list({none, operand(1)})}, {x, index},
              {x.index({at::indexing::Slice(), index})});
  expect_call("aten::clamp", {operand(0), none, lit(0.25)}, {x}, {x.clamp_max(0.25)});
  expect_call("aten::clamp", {operand(0), lit(0), none}, {x}, {x.clamp_min(0)});
  expect_call(
      "aten::_to_copy",
      {operand(0), symbol("dtype", "bf16"), symbol("layout", "strided"), symbol("device", "cpu"),
       lit(false), lit(false), symbol("memory_format", "preserve_format")},
      {x}, {x.to(at::kBFloat16)});
  expect_call("aten::clone", {operand(0), symbol("memory_format", "channels_last")}, {image},
              {image.clone(at::MemoryFormat::ChannelsLast)});
  expect_call("aten::topk", {operand(0), lit(2), lit(-1), lit(true), lit(true)}, {x},
              {std::get<0>(x.topk(2)), std::get<1>(x.topk(2))});
  expect_call("aten::topk", {operand(0), lit(2), lit(-1), lit(true), lit(true)}, {x},
              {at::Tensor(), std::get<1>(x.topk(2))});
  expect_call("aten::split.Tensor", {operand(0), lit(4), lit(1)}, {x}, x.split(4, 1));
  expect_call("aten::split_with_sizes", {operand(0), list({lit(1), lit(5)}), lit(1)}, {x},
              x.split_with_sizes({1, 5}, 1));
  expect_call("aten::div.Tensor_mode", {operand(0), operand(1), lit("floor")}, {x, x + 3},
              {at::div(x, x + 3, "floor")});
  expect_call("aten::upsample_nearest2d", {operand(0), list({lit(6), lit(6)}), lit(2.0), lit(2)},
              {image}, {at::upsample_nearest2d(image, {6, 6}, 2.0, 2.0)});
  expect_call("aten::upsample_nearest2d.vec", {operand(0), none, list({lit(2.0), lit(2)})}, {image},
              {at::upsample_nearest2d(image, {6, 6}, 2.0, 2.0)});
  expect_call("aten::full",
              {list({lit(2)}), Literal{std::complex<double>(1, -2)}, symbol("dtype", "c64"), none,
               none, none},
              {}, {at::full({2}, c10::complex<double>(1, -2), at::kComplexFloat)});
  // One number for a list of known length, a number for a tensor, overload "default".
  expect_call("aten::avg_pool2d",
              {operand(0), lit(2), list({}), lit(0), lit(false), lit(true), none}, {image},
              {at::avg_pool2d(image, 2)});
  expect_call("aten::mul.Tensor", {operand(0), lit(2)}, {at::arange(3, at::kInt)},
              {at::arange(3, at::kInt) * 2});
  expect_call("aten::mul.Tensor", {operand(0), lit(0.5)}, {at::ones({3}, at::kHalf)},
              {at::ones({3}, at::kHalf) * 0.5});
  expect_call("aten::relu.default", {operand(0)}, {x}, {x.relu()});
}

// As `group_name` of functional collectives is.
at::Tensor tagged(const at::Tensor& x, const c10::IValue& tag) {
  if (tag.isString()) return x + static_cast<int64_t>(tag.toStringRef().size());
  return x * tag.toScalar();
}

TORCH_LIBRARY_FRAGMENT(hostjit_aten_call_test, library) {
  library.def("tagged(Tensor x, Any tag) -> Tensor", tagged);
}

TEST(AtenCall, AnArgumentMayBeOfAnyType) {
  const at::Tensor x = at::ones({2});
  const std::string target = "hostjit_aten_call_test::tagged";
  expect_call(target, {operand(0), lit("abc")}, {x}, {x + 3});
  expect_call(target, {operand(0), lit(4)}, {x}, {x * 4});
  expect_call(target, {operand(0), lit(0.5)}, {x}, {x * 0.5});
}

TEST(AtenCall, NoneIsAnUndefinedTensor) {
  static const auto library = [] {
    auto made = std::make_unique<torch::Library>(torch::Library::FRAGMENT, "hostjit_none",
                                                 std::nullopt, __FILE__, __LINE__);
    made->def("pick(Tensor x, Tensor bias) -> Tensor");
    made->impl("pick", torch::dispatch(c10::DispatchKey::CPU,
                                       [](const at::Tensor& x, const at::Tensor& bias) {
                                         return bias.defined() ? x + bias : x * 2;
                                       }));
    return made;
  }();
  const at::Tensor x = at::ones({3});
  expect_call("hostjit_none::pick", {operand(0), none}, {x}, {x * 2});
  expect_call("hostjit_none::pick", {operand(0), operand(1)}, {x, x}, {x + x});
}

TEST(AtenCall, ScalarOperands) {
  const at::Tensor x = at::arange(12, at::kFloat).view({3, 4});
  expect_call("aten::slice.Tensor", {operand(0), lit(1), operand(1), operand(2), lit(1)}, {x},
              {x.slice(1, 1, 3)}, {1, 3});
  expect_call("aten::view", {operand(0), list({operand(1), lit(2), operand(2)})}, {x},
              {x.view({2, 2, 3})}, {2, 3});
  expect_call("aten::add.Tensor", {operand(0), operand(1), lit(1)}, {x}, {x + 5}, {5});
  expect_call("aten::add.Tensor", {operand(0), operand(0), operand(1)}, {x}, {x * 4}, {3});
  expect_call("aten::leaky_relu", {operand(0), operand(1)}, {-x}, {at::leaky_relu(-x, 2)}, {2});
}

TEST(AtenCall, FloatingPointOperands) {
  const std::vector<SlotSpec> slots = {call_slot(spec(DType::kF32, {3}, {1}))};
  AtenCallSpec spec{"aten::add.Tensor",
                    {operand(0), operand(1), operand(2)},
                    {true, false, false},
                    {0},
                    {false, true, true}};
  at::Tensor x = at::arange(3, at::kFloat);
  double scalars[] = {0.5, 2.0};
  void* operands[] = {&x, &scalars[0], &scalars[1]};
  const AtenCallSite site(spec, slots);
  site.call(operands,
            [&](int64_t, const at::Tensor& result) { EXPECT_TRUE(at::equal(result, x + 1)); });
  spec = {"aten::select.int", {operand(0), lit(0), operand(1)}, {true, false}, {0}, {false, true}};
  EXPECT_EQ(error_of([&] { AtenCallSite(spec, slots); }),
            "aten_call 'aten::select.int': argument 'index' is $1, expected SymInt");
}

TEST(AtenCall, RandomNumbersComeFromTheDefaultGenerator) {
  const std::vector<Literal> arguments = {list({lit(2), lit(3)}), symbol("dtype", "f32"), none,
                                          symbol("device", "cpu"), lit(false)};
  at::manual_seed(7);
  const at::Tensor expected = at::randn({2, 3});
  at::manual_seed(7);
  expect_call("aten::randn", arguments, {}, {expected});
}

TEST(AtenCall, InPlaceAndNothingReturned) {
  at::Tensor x = at::ones({3});
  const auto results = call("aten::add_.Tensor", {operand(0), lit(1), lit(1)}, {x}, {}, {x});
  EXPECT_TRUE(results[0].is_same(x));
  EXPECT_EQ(x.sum().item<float>(), 6);
  call("aten::_foreach_add_.Scalar", {list({operand(0)}), lit(2)}, {x}, {}, {});
  EXPECT_EQ(x.sum().item<float>(), 12);
}

TEST(AtenCall, LazyConjugationIsMadePlain) {
  const at::Tensor x = at::randn({2, 2}, at::kComplexFloat);
  const auto results = call("aten::_conj", {operand(0)}, {x}, {}, {x});
  EXPECT_FALSE(results[0].is_conj());
  EXPECT_TRUE(at::equal(results[0], x.conj()));
  const at::Tensor imaginary = at::imag(x.conj());
  ASSERT_TRUE(imaginary.is_neg());
  const auto plain = call("aten::alias", {operand(0)}, {imaginary}, {}, {imaginary});
  EXPECT_FALSE(plain[0].is_neg());
  EXPECT_TRUE(at::equal(plain[0], imaginary));
}

TEST(AtenCall, MistakesAreNamedWhenTheSiteIsMade) {
  const at::Tensor x = at::ones({2});
  const auto error = [&](const std::string& target, std::vector<Literal> arguments,
                         std::vector<int64_t> scalars = {}) {
    return error_of([&] { call(target, arguments, {x}, scalars, {x}); });
  };
  EXPECT_EQ(error("aten::nothing", {}), "aten_call 'aten::nothing': PyTorch has no such operator");
  EXPECT_EQ(error("relu", {}), "aten_call 'relu': expected a name such as aten::sum.dim_IntList");
  EXPECT_EQ(error("aten::relu", {}),
            "aten_call 'aten::relu': has 0 arguments, expected the 1 of "
            "aten::relu(Tensor self) -> Tensor");
  EXPECT_EQ(error("aten::sum.dim_IntList", {operand(0), lit(1.5), lit(false), none}),
            "aten_call 'aten::sum.dim_IntList': argument 'dim' is 1.5, expected int[]?");
  EXPECT_EQ(error("aten::relu", {operand(3)}),
            "aten_call 'aten::relu': refers to operand $3, but has 1 operands");
  EXPECT_EQ(error("aten::cat", {list({operand(0), none}), lit(0)}),
            "aten_call 'aten::cat': argument 'tensors' is [$0, none], expected Tensor[]");
  EXPECT_EQ(error("aten::unsqueeze", {operand(0), operand(0)}),
            "aten_call 'aten::unsqueeze': argument 'dim' is $0, expected int");
  EXPECT_EQ(error("aten::div.Tensor_mode", {operand(0), operand(0), operand(1)}, {3}),
            "aten_call 'aten::div.Tensor_mode': argument 'rounding_mode' is $1, expected str?");
  EXPECT_EQ(error("aten::clone", {operand(0), symbol("memory_format", "sideways")}),
            "aten_call 'aten::clone': argument 'memory_format' is memory_format(sideways), "
            "expected MemoryFormat?");
}

TEST(AtenCall, ResultsAreCheckedAgainstTheirSlots) {
  const at::Tensor x = at::ones({2, 3});
  const auto error = [&](const at::Tensor& expected) {
    return error_of([&] { call("aten::relu", {operand(0)}, {x}, {}, {expected}); });
  };
  EXPECT_EQ(error(x.to(at::kInt)), "aten_call 'aten::relu': result 0 has dtype f32, expected i32");
  EXPECT_EQ(error(at::ones({3, 2})),
            "aten_call 'aten::relu': result 0 has sizes [2, 3], expected [3, 2]");
  EXPECT_EQ(
      error_of([&] { call("aten::t", {operand(0)}, {at::ones({2, 2})}, {}, {at::ones({2, 2})}); }),
      "aten_call 'aten::t': result 0 has strides [1, 2], expected [2, 1]");
  EXPECT_EQ(error_of([&] { call("aten::relu", {operand(0)}, {x}, {}, {x, x}); }),
            "aten_call 'aten::relu': returned 1 results, expected 2");
  EXPECT_EQ(error_of([&] { call("aten::dim", {operand(0)}, {x}, {}, {x}); }),
            "aten_call 'aten::dim': result 0 is no tensor, expected a tensor");
  EXPECT_EQ(
      error_of([&] { call("aten::_to_sparse", {operand(0), none, none, none}, {x}, {}, {x}); }),
      "aten_call 'aten::_to_sparse': result 0 has layout Sparse, expected strided");
}

TEST(AtenCall, ResultsOfOtherStridesAreLaidOutAnew) {
  const at::Tensor expected = at::ones({3, 2}).t();
  const auto results = call("aten::relu", {operand(0)}, {at::ones({2, 3})}, {}, {expected});
  EXPECT_TRUE(at::equal(results[0], expected));
  EXPECT_EQ(results[0].strides(), expected.strides());
}

TEST(AtenCall, StridesOfSizeOneDoNotCount) {
  const at::Tensor x = at::ones({1, 3});
  expect_call("aten::relu", {operand(0)}, {x}, {at::as_strided(x, {1, 3}, {17, 1})});
}

TEST(AtenCall, OperatorErrorsPassUnchanged) {
  const at::Tensor x = at::ones({2, 3});
  EXPECT_EQ(error_of([&] { call("aten::mm", {operand(0), operand(0)}, {x}, {}, {x}); }),
            "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
}

TEST(TorchTypes, MapBothWays) {
#define HOSTJIT_CHECK_DTYPE(enumerator, text, bytes, torch_name)                       \
  EXPECT_EQ(dtype_from_torch(to_torch(DType::enumerator)), DType::enumerator) << text; \
  EXPECT_EQ(static_cast<int64_t>(c10::elementSize(to_torch(DType::enumerator))), bytes);
  HOSTJIT_FOR_EACH_DTYPE(HOSTJIT_CHECK_DTYPE)
#undef HOSTJIT_CHECK_DTYPE
  EXPECT_EQ(dtype_from_torch(at::kQInt8), std::nullopt);
  EXPECT_EQ(device_from_torch(at::Device("cuda:1")), (Device{DeviceType::kCUDA, 1}));
  EXPECT_EQ(device_from_torch(at::kCPU), Device{});
  EXPECT_EQ(to_torch(Device{DeviceType::kCUDA, 1}), at::Device("cuda:1"));
  EXPECT_EQ(error_of([] { device_from_torch(at::Device("xpu:0")); }),
            "device xpu:0 is not supported, expected cpu or cuda");
}

}  // namespace
}  // namespace hostjit
