// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include "bindings/program_bindings.h"
#include "ir/reference.h"
#include "jit/jit.h"
#include "support/check.h"
#include "support/dtype.h"
#include "support/dump.h"
#include "support/knobs.h"

namespace py = pybind11;

namespace hostjit {
namespace {

py::dict torch_dtypes() {
  const py::module_ torch = py::module_::import("torch");
  py::dict dtypes;
#define HOSTJIT_TORCH_DTYPE(enumerator, text, bytes, torch_name) \
  if (py::hasattr(torch, torch_name)) dtypes[text] = torch.attr(torch_name);
  HOSTJIT_FOR_EACH_DTYPE(HOSTJIT_TORCH_DTYPE)
#undef HOSTJIT_TORCH_DTYPE
  return dtypes;
}

}  // namespace

void bind_support(py::module_& module) {
  py::register_exception<Error>(module, "Error", PyExc_RuntimeError);
  py::register_exception<InternalError>(module, "InternalError", PyExc_RuntimeError);
  module.def("torch_dtypes", &torch_dtypes, "Host IR's names of dtypes and torch's objects.");
  module.def("recompile_limit", [] { return knob_integer(Knob::kRecompileLimit); });
  module.def("profile_ranges",
             [] { return is_enabled(Knob::kProfileRanges) || is_enabled(Knob::kNvtx); });
  module.def("capture_dump_enabled", [] { return is_enabled(Knob::kDumpCapture); });
  module.def("dump_capture", [](const std::string& program, const std::string& text) {
    dump({Knob::kDumpCapture, program, "captured", "py"}, text);
  });
  module.def("dump_shapes", [](const std::string& program, const std::string& text) {
    dump({Knob::kDumpShapes, program, "one_shape", "txt"}, text);
  });
  module.def(
      "push_knobs",
      [](std::string enable, std::string disable, std::string dump,
         std::optional<std::string> dump_directory, std::optional<std::string> cache_directory) {
        return push_knobs({std::move(enable), std::move(disable), std::move(dump),
                           std::move(dump_directory), std::move(cache_directory)});
      },
      py::kw_only(), py::arg("enable") = "", py::arg("disable") = "", py::arg("dump") = "",
      py::arg("dump_directory") = py::none(), py::arg("cache_directory") = py::none());
  module.def("pop_knobs", &pop_knobs, py::arg("ticket"));
  module.def("knob_rows", [] {
    py::list rows;
    for (const KnobRow& row : knob_rows()) {
      py::dict entry;
      entry["variable"] = row.variable;
      entry["name"] = row.name;
      entry["argument"] = row.argument;
      entry["default"] = row.default_value;
      entry["help"] = row.help;
      entry["current"] = row.current;
      rows.append(entry);
    }
    return rows;
  });
  module.def("object_cache_report", [] {
    const ObjectCacheReport report = object_cache_report();
    py::dict entry;
    entry["directory"] = report.directory;
    entry["hits"] = report.hits;
    entry["misses"] = report.misses;
    entry["rejected"] = report.rejected;
    entry["stored"] = report.stored;
    entry["evicted"] = report.evicted;
    entry["problem"] = report.problem;
    return entry;
  });
  module.def("knob_reference_page", &knob_reference_page);
  module.def("op_reference_page", &op_reference);
}

}  // namespace hostjit
