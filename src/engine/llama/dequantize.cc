#include <llama.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/output_target.h"
#include "base/try.h"
#include "engine/llama/llama_engine.h"
#include "engine/llama/model_file.h"
#include "engine/llama/process.h"

namespace kvserve {

Status DequantizeModel(const std::string& source, const std::string& target) {
  KVSERVE_ASSIGN(const std::string resolved, ResolveOutputTarget(target));
  KVSERVE_TRY(CheckGguf(source));
  InitEngineLibrary();
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_MOSTLY_F16;
  params.allow_requantize = true;
  params.nthread = 2;
  // The process id keeps two first uses at once apart; the last rename wins with the same content.
  const std::string partial = resolved + "." + std::to_string(getpid()) + ".tmp";
  if (llama_model_quantize(source.c_str(), partial.c_str(), &params) != 0) {
    std::remove(partial.c_str());
    return MakeError(ErrorCode::kBadInput, "model " + source + ": cannot be dequantized to " +
                                               target + ": " + LastEngineError());
  }
  if (std::rename(partial.c_str(), resolved.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(partial.c_str());
    return MakeError(ErrorCode::kBadInput, "cannot write model " + target + ": " + reason);
  }
  return {};
}

}  // namespace kvserve
