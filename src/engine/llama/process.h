// What a process must settle before the first engine: OpenMP's waiting, llama.cpp's logging.
#pragma once

#include <string>

namespace kvserve {

// Call before the first engine and before any output. Two processes that spin at OpenMP barriers on
// shared cores slow each other 10-30 times, and libgomp reads OMP_WAIT_POLICY when it is loaded,
// before main: so, unless the user set it, this sets it to PASSIVE and runs the program again in
// place (same process id and arguments). Returns when nothing is to be done; also, with waiting
// unchanged, when the program cannot be run again.
void PrepareProcessForEngines();

// Initialises libllama once and sends its log to LastEngineError instead of stderr. Thread-safe.
void InitEngineLibrary();

// Version of the library and the instructions that it uses: engines of equal identity compute the
// same floats from the same model and tokens.
[[nodiscard]] std::string EngineLibraryIdentity();

// The last error line that libllama logged on this thread, without line end; cleared by reading.
[[nodiscard]] std::string LastEngineError();

}  // namespace kvserve
