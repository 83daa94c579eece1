// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <limits>

#include "bindings/program_bindings.h"
#include "ir/kernel.h"
#include "jit/host_kernel.h"
#include "runtime/kernel_error.h"
#include "runtime/launchable_kernel.h"

namespace py = pybind11;

namespace hostjit {
namespace {

uint64_t word_of(const Kernel& kernel, size_t i, const py::object& argument, at::Device device) {
  const ParameterType type = kernel.parameters[i];
  const auto expect = [&](bool condition, std::string_view expected) {
    HOSTJIT_CHECK(condition, "kernel '", kernel.name, "': parameter ", i, " is a ",
                  Py_TYPE(argument.ptr())->tp_name, ", expected ", expected);
  };
  if (type == ParameterType::kPointer) {
    if (argument.is_none()) return 0;
    expect(THPVariable_Check(argument.ptr()), "a tensor or None");
    const at::Tensor& tensor = THPVariable_Unpack(argument.ptr());
    HOSTJIT_CHECK(tensor.device() == device, "kernel '", kernel.name, "': parameter ", i, " is on ",
                  tensor.device().str(), ", expected ", device.str());
    return reinterpret_cast<uint64_t>(tensor.unsafeGetTensorImpl()->mutable_data());
  }
  if (type == ParameterType::kF32 || type == ParameterType::kF64) {
    expect(PyFloat_Check(argument.ptr()) || PyLong_Check(argument.ptr()), "a number");
    return float_bits(argument.cast<double>(), type);
  }
  expect(PyLong_Check(argument.ptr()), "an integer");
  const auto value = argument.cast<int64_t>();
  if (!holds(type, value)) throw_parameter_error(kernel.name, static_cast<int64_t>(i), value);
  return static_cast<uint64_t>(value);
}

// `arguments` are one for each parameter: tensors, None for a null pointer, and numbers.
std::vector<uint64_t> words_of(const Kernel& kernel, const py::sequence& arguments,
                               at::Device device) {
  HOSTJIT_CHECK(arguments.size() == kernel.parameters.size(), "kernel '", kernel.name, "' takes ",
                kernel.parameters.size(), " arguments, got ", arguments.size());
  std::vector<uint64_t> words;
  words.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    words.push_back(word_of(kernel, i, py::object(arguments[i]), device));
  }
  return words;
}

// A kernel for CUDA, with what Python hands it as parameters.
class PyKernel {
 public:
  explicit PyKernel(Kernel kernel) : kernel_(std::move(kernel)), launchable_(spec_of(kernel_)) {}

  // `arguments` are one for each parameter: tensors, None for a null pointer, and numbers.
  void launch(int32_t device, const std::vector<int64_t>& grid, const std::vector<int64_t>& block,
              const std::vector<int64_t>& cluster, int64_t shared_memory, bool cooperative,
              bool programmatic, const py::sequence& arguments) {
    const at::Device on(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    std::vector<uint64_t> words = words_of(kernel_, arguments, on);
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
    if (kernel.language == KernelLanguage::kCudaFunction) spec.function = function_address(kernel);
    for (const ParameterType type : kernel.parameters) {
      spec.parameter_bytes.push_back(size_in_bytes(type));
    }
    return spec;
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

// A kernel of the CPU, with what Python hands it as parameters.
class PyHostKernel {
 public:
  PyHostKernel(Kernel kernel, bool takes_range) : kernel_(std::move(kernel), takes_range) {}

  void launch(int64_t items, int64_t grain, const py::sequence& arguments) {
    const std::vector<uint64_t> words = words_of(kernel_.kernel(), arguments, at::Device(at::kCPU));
    const py::gil_scoped_release released;
    kernel_.launch(words, items, grain);
  }

 private:
  HostKernel kernel_;
};

}  // namespace

Kernel kernel_from_python(const std::string& name, const std::string& text,
                          const std::string& language, const std::string& entry,
                          const std::vector<std::string>& parameters, const py::object& owner) {
  Kernel kernel{name, text, kernel_language_from_string(language), entry};
  std::ranges::transform(parameters, std::back_inserter(kernel.parameters),
                         parameter_type_from_string);
  if (owner.is_none()) return kernel;
  // Programs end on any thread, and with the process.
  kernel.owner = std::shared_ptr<void>(owner.inc_ref().ptr(), [](void* object) {
    if (Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire acquired;
    Py_DECREF(static_cast<PyObject*>(object));
  });
  return kernel;
}

void bind_kernels(py::module_& module) {
  py::class_<PyKernel>(module, "DeviceKernel", "A kernel for CUDA that is launched by itself.")
      .def(
          py::init([](const std::string& name, const std::string& text, const std::string& language,
                      const std::string& entry, const std::vector<std::string>& parameters) {
            return std::make_unique<PyKernel>(
                kernel_from_python(name, text, language, entry, parameters, py::none()));
          }),
          py::arg("name"), py::arg("text"), py::arg("language"), py::arg("entry"),
          py::arg("parameters"))
      .def("launch", &PyKernel::launch, py::arg("device"), py::arg("grid"), py::arg("block"),
           py::arg("cluster"), py::arg("shared_memory"), py::arg("cooperative"),
           py::arg("programmatic"), py::arg("arguments"));
  py::class_<PyHostKernel>(module, "HostKernel", "A kernel for the CPU that is launched by itself.")
      .def(
          py::init([](const std::string& name, const std::string& text, const std::string& language,
                      const std::string& entry, const std::vector<std::string>& parameters,
                      bool takes_range, const py::object& owner) {
            return std::make_unique<PyHostKernel>(
                kernel_from_python(name, text, language, entry, parameters, owner), takes_range);
          }),
          py::arg("name"), py::arg("text"), py::arg("language"), py::arg("entry"),
          py::arg("parameters"), py::arg("takes_range"), py::arg("owner"))
      .def("launch", &PyHostKernel::launch, py::arg("items"), py::arg("grain"),
           py::arg("arguments"));
  module.def(
      "parameters_in_text",
      [](const std::string& text, const std::string& entry) {
        std::vector<std::string> types;
        for (const ParameterType type : parameters_in_text(text, entry)) {
          types.emplace_back(to_string(type));
        }
        return types;
      },
      py::arg("text"), py::arg("entry"),
      "The types of the parameters of a function in LLVM IR, which has to be a kernel.");
}

}  // namespace hostjit
