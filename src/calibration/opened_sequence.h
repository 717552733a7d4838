// A sequence of an engine that is closed on every way out.
#pragma once

#include "engine/engine.h"

namespace kvserve {

class OpenedSequence {
 public:
  OpenedSequence(Engine& engine, SequenceId id) : engine_(engine), id_(id) {}
  ~OpenedSequence() { engine_.CloseSequence(id_); }
  OpenedSequence(const OpenedSequence&) = delete;
  OpenedSequence& operator=(const OpenedSequence&) = delete;

 private:
  Engine& engine_;
  SequenceId id_;
};

}  // namespace kvserve
