// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/watch_list.h"
#include "support/check.h"

namespace py = pybind11;

namespace hostjit {

WatchList watches_from_python(PyObject* entries, std::vector<PyObject*> unheld) {
  WatchList watches(std::move(unheld));
  for (const py::handle entry : py::reinterpret_borrow<py::object>(entries)) {
    const auto parts = py::reinterpret_borrow<py::tuple>(entry);
    const auto kind = parts[0].cast<std::string>();
    const auto part = [&](size_t i) { return py::object(parts[i]).ptr(); };
    const auto optional = [&](size_t i) { return part(i) == Py_None ? nullptr : part(i); };
    if (kind == "dict") {
      watches.add_dict(part(1), optional(2));
    } else if (kind == "dict_items") {
      watches.add_dict_items(part(1), optional(2), part(3), part(4), part(5));
    } else if (kind == "dict_keys") {
      watches.add_dict_keys(part(1), part(2));
    } else if (kind == "cell") {
      PyObject* contents = part(2);
      watches.add_cell(part(1),
                       PyTuple_GET_SIZE(contents) ? PyTuple_GET_ITEM(contents, 0) : nullptr);
    } else if (kind == "list") {
      watches.add_list(part(1), part(2), parts.size() > 3 ? part(3) : nullptr);
    } else if (kind == "set") {
      watches.add_set(part(1), part(2));
    } else if (kind == "type") {
      watches.add_type(part(1));
    } else if (kind == "type_but") {
      watches.add_type_but(part(1), part(2));
    } else if (kind == "object_type") {
      watches.add_object_type(part(1), part(2));
    } else if (kind == "function") {
      watches.add_function(part(1), part(2), part(3), part(4));
    } else if (kind == "fields") {
      watches.add_fields(part(1), part(2));
    } else if (kind == "slots") {
      watches.add_slots(part(1), part(2));
    } else if (kind == "tensor") {
      watches.tensors().add_tensor(part(1));
    } else if (kind == "no_gradient") {
      watches.tensors().add_no_gradient(part(1));
    } else if (kind == "has_gradient") {
      watches.tensors().add_has_gradient(part(1));
    } else if (kind == "gradient") {
      watches.tensors().add_gradient(part(1));
    } else if (kind == "hooks") {
      watches.add_hooks(part(1));
    } else if (kind == "plain_leaf") {
      watches.tensors().add_plain_leaf(part(1));
    } else if (kind == "plain_backward") {
      watches.add_plain_backward();
    } else if (kind == "unwritten") {
      watches.tensors().add_unwritten(part(1));
    } else if (kind == "abc_token") {
      watches.add_abc_token(part(1));
    } else {
      throw_error(
          concat("unknown watch '", kind,
                 "', expected dict, dict_items, dict_keys, cell, list, set, type, type_but, "
                 "object_type, function, fields, slots, tensor, no_gradient, has_gradient, "
                 "gradient, hooks, plain_leaf, plain_backward, unwritten or abc_token"));
    }
  }
  return watches;
}

}  // namespace hostjit
