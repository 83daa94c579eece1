// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <limits>

#include "bindings/program_bindings.h"
#include "ir/kernel.h"
#include "runtime/launchable_kernel.h"

namespace py = pybind11;

namespace hostjit {
namespace {

// A kernel for CUDA, with what Python hands it as parameters.
class PyKernel {
 public:
  explicit PyKernel(Kernel kernel) : kernel_(std::move(kernel)), launchable_(spec_of(kernel_)) {}

  // `arguments` are one for each parameter: tensors, None for a null pointer, and numbers.
  void launch(int32_t device, const std::vector<int64_t>& grid, const std::vector<int64_t>& block,
              const std::vector<int64_t>& cluster, int64_t shared_memory, bool cooperative,
              bool programmatic, const py::sequence& arguments) {
    std::vector<uint64_t> words;
    words.reserve(kernel_.parameters.size());
    for (size_t i = 0; i < kernel_.parameters.size(); ++i) {
      words.push_back(word_of(i, py::object(arguments[i]), device));
    }
    cuda::LaunchShape shape;
    set(shape.grid, grid, "grid");
    set(shape.block, block, "block");
    set(shape.cluster, cluster, "cluster");
    shape.shared_memory = static_cast<uint32_t>(shared_memory);
    shape.cooperative = cooperative;
    shape.programmatic = programmatic;
    const py::gil_scoped_release released;
    launchable_.launch(device, shape, std::move(words));
  }

 private:
  static DeviceKernelSpec spec_of(const Kernel& kernel) {
    HOSTJIT_CHECK(is_cuda(kernel.language), "kernel '", kernel.name, "' is ",
                  to_string(kernel.language), ", expected code for CUDA");
    DeviceKernelSpec spec{kernel.name, kernel.text, kernel.entry, {}};
    if (kernel.language == KernelLanguage::kCudaFunction) spec.function = cuda_function_of(kernel);
    for (const ParameterType type : kernel.parameters) {
      spec.parameter_bytes.push_back(size_in_bytes(type));
    }
    return spec;
  }

  uint64_t word_of(size_t i, const py::object& argument, int32_t device) const {
    const ParameterType type = kernel_.parameters[i];
    const auto expect = [&](bool condition, std::string_view expected) {
      HOSTJIT_CHECK(condition, "kernel '", kernel_.name, "': parameter ", i, " is a ",
                    Py_TYPE(argument.ptr())->tp_name, ", expected ", expected);
    };
    if (type == ParameterType::kPointer) {
      if (argument.is_none()) return 0;
      expect(THPVariable_Check(argument.ptr()), "a tensor or None");
      const at::Tensor& tensor = THPVariable_Unpack(argument.ptr());
      HOSTJIT_CHECK(tensor.is_cuda() && tensor.device().index() == device, "kernel '", kernel_.name,
                    "': parameter ", i, " is on ", tensor.device().str(),
                    ", expected cuda:", device);
      return reinterpret_cast<uint64_t>(tensor.unsafeGetTensorImpl()->mutable_data());
    }
    if (type == ParameterType::kF32 || type == ParameterType::kF64) {
      expect(PyFloat_Check(argument.ptr()) || PyLong_Check(argument.ptr()), "a number");
      return float_bits(argument.cast<double>(), type);
    }
    expect(PyLong_Check(argument.ptr()), "an integer");
    const auto value = argument.cast<int64_t>();
    if (!holds(type, value)) throw_parameter_error(kernel_.name, static_cast<int64_t>(i), value);
    return static_cast<uint64_t>(value);
  }

  void set(uint32_t (&sizes)[3], const std::vector<int64_t>& given, std::string_view name) const {
    HOSTJIT_CHECK(given.size() == 3, "kernel '", kernel_.name, "': ", name, " has ", given.size(),
                  " sizes, expected 3");
    for (size_t i = 0; i < 3; ++i) {
      HOSTJIT_CHECK(given[i] >= 0 && given[i] <= std::numeric_limits<int32_t>::max(), "kernel '",
                    kernel_.name, "': ", name, " has size ", given[i],
                    ", expected 0 to 2147483647");
      sizes[i] = static_cast<uint32_t>(given[i]);
    }
  }

  const Kernel kernel_;
  LaunchableKernel launchable_;
};

std::unique_ptr<PyKernel> make_kernel(const std::string& name, const std::string& text,
                                      const std::string& language, const std::string& entry,
                                      const std::vector<std::string>& parameters) {
  Kernel kernel{name, text, kernel_language_from_string(language), entry};
  std::ranges::transform(parameters, std::back_inserter(kernel.parameters),
                         parameter_type_from_string);
  return std::make_unique<PyKernel>(std::move(kernel));
}

}  // namespace

void bind_kernels(py::module_& module) {
  py::class_<PyKernel>(module, "DeviceKernel", "A kernel for CUDA that is launched by itself.")
      .def(py::init(&make_kernel), py::arg("name"), py::arg("text"), py::arg("language"),
           py::arg("entry"), py::arg("parameters"))
      .def("launch", &PyKernel::launch, py::arg("device"), py::arg("grid"), py::arg("block"),
           py::arg("cluster"), py::arg("shared_memory"), py::arg("cooperative"),
           py::arg("programmatic"), py::arg("arguments"));
}

}  // namespace hostjit
