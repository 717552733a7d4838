// kvserve._native: the public C++ API as it is, for python/kvserve to build on.
#include "glue.h"
#include "paged.h"

namespace kvserve::python {
namespace {

// Raises kvserve._errors.error_of(code, message).
void Translate(const std::exception_ptr& caught, void* /*unused*/) {
  try {
    std::rethrow_exception(caught);
  } catch (const Raised& raised) {
    const nb::object error =
        nb::module_::import_("kvserve._errors")
            .attr("error_of")(static_cast<int>(raised.error.code), raised.error.message);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  }
}

}  // namespace

void BindErrors(nb::module_& module) {
  nb::register_exception_translator(Translate);
  nb::dict codes;
  for (int code = 1; code <= static_cast<int>(ErrorCode::kPermissionDenied); ++code) {
    codes[ErrorName(static_cast<ErrorCode>(code))] = code;
  }
  module.attr("ERROR_CODES") = codes;
}

}  // namespace kvserve::python

NB_MODULE(_native, module) {
  using namespace kvserve::python;
  module.doc() = "The C++ library of KVServe; use the package kvserve instead.";
  module.attr("VERSION") = KVSERVE_VERSION;
  BindErrors(module);
  BindGeometry(module);
  BindProfiles(module);
  BindChunks(module);
  BindCodec(module);
  BindPaged(module);
  BindTransfer(module);
}
