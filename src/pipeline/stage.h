// What a stage is: one interface per kind, and the stage table. stage_facts.h has what stages see.
//
// A frame is coded plane by plane in coding order (K0, V0, K1, V1, ...; one plane per single-plane
// layer). Encoding one plane: transforms forward, then the quantizer; if a transform asks for
// feedback, the plane is decoded again at once, so that later planes are predicted from what the
// receiver will have. The quantizer, which made classes of the selectors' weights before, then
// codes the token classes of all planes, and the codec their symbols. Decoding runs in three steps:
// token classes of all planes, all symbols by the codec, then plane by plane dequantizer and
// inverse transforms. Planes without tokens are planned and are in every list, but are never
// transformed or quantized. ARCHITECTURE.md works the hardest known codec through these interfaces.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/byte_io.h"
#include "kvserve/error.h"
#include "kvserve/profile.h"
#include "kvserve/view.h"
#include "pipeline/stage_facts.h"

namespace kvserve {

// ---- kinds -------------------------------------------------------------------------------------
// Stages are immutable after creation and used by many threads at once. Each stage appends to
// `side` what its inverse needs; the side bytes of a plane lie in decoding order (the quantizer's,
// then the transforms' from last to first), and a reader must consume exactly what was written.

// What a selector remembers from the earlier frames of a request (attention mass of keys already
// sent); encoder only, one thread at a time.
class SelectorMemory {
 public:
  virtual ~SelectorMemory() = default;
};

// Encoder only: looks at the whole raw chunk and weighs its tokens. A weight is the relative
// sensitivity to errors: a quantizer that honours weights gives a token 1 / sqrt(weight) times the
// nominal step. A token of weight 0 is dropped from the plane: nothing of it is sent.
class Selector {
 public:
  virtual ~Selector() = default;
  // weights[p] is [token] of plane p in coding order; set to 1 by the caller, then multiplied by
  // each selector of the chain in turn; finite, at least 0. `memory` is what NewMemory gave, or
  // null for a frame on its own.
  [[nodiscard]] virtual Status Weigh(const FrameContext& frame, const ConstKvView& view,
                                     SelectorMemory* memory,
                                     std::span<std::vector<float>> weights) const = 0;
  [[nodiscard]] virtual std::unique_ptr<SelectorMemory> NewMemory() const { return nullptr; }
  // True: FrameContext::artefact is set, and frames name it.
  [[nodiscard]] virtual bool needs_artefact() const { return false; }
  // True: FrameContext::queries is set and has every layer of the frame, in the keys' shapes.
  [[nodiscard]] virtual bool needs_queries() const { return false; }
  // False: never gives weight 0, so that receivers which cannot drop tokens take its frames.
  [[nodiscard]] virtual bool may_drop() const { return false; }
};

// Which way a stage is opened for: some matrices are costly and only of use in one of them.
enum class Direction : std::uint8_t { kForward, kInverse };

// A transform of each row (token) on its own, without side bytes: an executor may run it on any
// rows of a plane, tile by tile. Same results, bit for bit, as Transform on the whole plane.
class RowTransform {
 public:
  // Once per plane and thread: signs, matrices. May be null. Rows then pass in this direction only,
  // one thread at a time, so that the state may hold scratch memory.
  [[nodiscard]] virtual Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                                       Direction direction) const = 0;
  // `rows` begins at row `first_row` of the plane.
  virtual void ForwardRows(const PlaneState* state, std::uint32_t first_row,
                           RealPlane rows) const = 0;
  virtual void InverseRows(const PlaneState* state, std::uint32_t first_row,
                           RealPlane rows) const = 0;

 protected:
  ~RowTransform() = default;
};

// A transform of each row by the decoded rows of the same token in earlier planes: an executor may
// take tiles of tokens through all planes, many of them at once. Same results, bit for bit, as
// Transform on whole planes.
class RowPredictor {
 public:
  // Once per tile; it lives in `arena`, until the tile has passed all planes.
  [[nodiscard]] virtual PlaneState* BeginTile(const FrameContext& frame, TokenRange tokens,
                                              Arena& arena) const = 0;
  // The next plane of the frame in coding order; `plane.tokens` are those of the tile that its
  // layer holds, perhaps none. Finds what the decoded rows before it predict.
  [[nodiscard]] virtual Status OpenPlane(PlaneState* tile, const PlaneContext& plane,
                                         PlaneShape shape) const = 0;
  // Of the open plane's rows, if there are any. InverseRows comes last, on either side, and is what
  // later planes are predicted from.
  virtual void ForwardRows(const PlaneState* tile, RealPlane rows) const = 0;
  virtual void InverseRows(PlaneState* tile, RealPlane rows) const = 0;

 protected:
  ~RowPredictor() = default;
};

class Transform {
 public:
  virtual ~Transform() = default;
  // Defaults: by rows(), the whole plane as one tile.
  [[nodiscard]] virtual Status Forward(const PlaneContext& plane, RealPlane values,
                                       ByteWriter& side) const;
  [[nodiscard]] virtual Status Inverse(const PlaneContext& plane, RealPlane values,
                                       ByteReader& side) const;
  // True: PlaneContext::decoded holds the earlier planes at this transform's input domain.
  [[nodiscard]] virtual bool needs_feedback() const { return false; }
  // True: after it, keys of layers whose rotation is known are those before RoPE. A transform that
  // needs such keys stands behind one that gives them (Chain::Create sees to it).
  [[nodiscard]] virtual bool unrotates_keys() const { return false; }
  [[nodiscard]] virtual bool needs_unrotated_keys() const { return false; }
  // True: what it gives (or takes) are an artefact's components, in steps. A transform that takes
  // them stands behind one that gives them, in new profiles.
  [[nodiscard]] virtual bool gives_components() const { return false; }
  [[nodiscard]] virtual bool needs_components() const { return false; }
  // True: FrameContext::artefact is set, and frames name it.
  [[nodiscard]] virtual bool needs_artefact() const { return false; }
  // Of this plane kind. Default: kCalibrated when an artefact is needed, else kUnit.
  [[nodiscard]] virtual ScaleSource scale_source(PlaneKind kind) const;
  // The same transform row by row, if it can; owned by this object.
  [[nodiscard]] virtual const RowTransform* rows() const { return nullptr; }
  // The same for one that needs feedback.
  [[nodiscard]] virtual const RowPredictor* predictor() const { return nullptr; }
};

// A quantizer that sees a plane in tiles of rows: Begin, Observe of every tile in order, Finish,
// then QuantizeRows of any tile. Same symbols and side bytes as Quantizer on the whole plane. A
// plane's leading rows without symbols (see Plan) belong to its first tile.
class RowQuantizer {
 public:
  [[nodiscard]] virtual PlaneState* Begin(const PlaneContext& plane, PlaneShape shape) const = 0;
  virtual void Observe(PlaneState* state, std::uint32_t first_row, ConstRealPlane rows) const = 0;
  [[nodiscard]] virtual Status Finish(PlaneState* state, ByteWriter& side) const = 0;
  // `symbols` are those of these rows, [row, column].
  virtual void QuantizeRows(const PlaneState* state, std::uint32_t first_row, ConstRealPlane rows,
                            std::span<std::uint8_t> symbols) const = 0;

  // Reads all side bytes of the plane. `symbols` has shape, alphabet and classes but no symbols.
  [[nodiscard]] virtual Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                                       const SymbolPlane& symbols,
                                                       ByteReader& side) const = 0;
  virtual void DequantizeRows(const PlaneState* state, std::uint32_t first_row,
                              std::span<const std::uint8_t> symbols, RealPlane rows) const = 0;

 protected:
  ~RowQuantizer() = default;
};

// A quantizer of each row on its own, which looks at no other row first: an executor may quantize
// the tiles of a plane in any order, many of them at once. A plane's leading rows without symbols
// belong to its first tile. Same symbols and side bytes as Quantizer on the whole plane.
class TileQuantizer {
 public:
  // Writes the symbols of `rows`, which begin at row `first_row` of the plane, to their place in
  // `symbols`, and puts in place of the values what a decoder will have. What the side bytes need
  // is kept in the plane's arena.
  [[nodiscard]] virtual PlaneState* QuantizeTile(const PlaneContext& plane,
                                                 const SymbolPlane& symbols,
                                                 std::uint32_t first_row, RealPlane rows) const = 0;
  // The side bytes of a plane from all its tiles, in order.
  virtual void WriteSide(std::span<PlaneState* const> tiles, ByteWriter& side) const = 0;

  // Reads all side bytes of the plane. `symbols` has shape, alphabet and classes but no symbols; it
  // outlives the state.
  [[nodiscard]] virtual Result<const PlaneState*> OpenTiles(const PlaneContext& plane,
                                                            PlaneShape shape,
                                                            const SymbolPlane& symbols,
                                                            ByteReader& side) const = 0;
  // `symbols` are those of these rows.
  virtual void DequantizeTile(const PlaneState* state, std::uint32_t first_row,
                              std::span<const std::uint8_t> symbols, RealPlane rows) const = 0;

 protected:
  ~TileQuantizer() = default;
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;
  // Sets columns and alphabet of `symbols` for a plane of this dtype and shape (layer, kind and
  // tokens are set; tokens may be lowered by leading rows that go into side bytes). Called by
  // encoder and decoder before storage is given; must not read data.
  [[nodiscard]] virtual Status Plan(const PlaneContext& plane, DType dtype, std::uint32_t heads,
                                    std::uint32_t dim, SymbolPlane& symbols) const = 0;

  // Encoder only, when selectors have weighed the tokens and before any plane is quantized: may set
  // the classes and runs of planes. `weights` is [plane][token]. Default: nothing.
  [[nodiscard]] virtual Status Classify(const FrameContext& frame,
                                        std::span<const std::vector<float>> weights,
                                        std::span<SymbolPlane> planes) const;

  // Real domain. Values are finite. Default: by rows(), the whole plane as one tile.
  [[nodiscard]] virtual Status Quantize(const PlaneContext& plane, ConstRealPlane values,
                                        SymbolPlane& symbols, ByteWriter& side) const;
  // Codes the token classes of all planes into a section of its own, since parsing of the symbols
  // may depend on them; classes of a plane may be coded given those of earlier planes. A reader
  // consumes exactly what was written, and sets the runs that follow. Default: no classes, no
  // bytes.
  [[nodiscard]] virtual Status WriteClasses(const FrameContext& frame,
                                            std::span<const SymbolPlane> planes,
                                            ByteWriter& out) const;
  [[nodiscard]] virtual Status ReadClasses(const FrameContext& frame, std::span<SymbolPlane> planes,
                                           ByteReader& in) const;
  [[nodiscard]] virtual Status Dequantize(const PlaneContext& plane, const SymbolPlane& symbols,
                                          ByteReader& side, RealPlane values) const;

  // Native domain: bit-exact on the cache's elements.
  [[nodiscard]] virtual Status QuantizeNative(const PlaneContext& plane,
                                              const ConstPlaneView& values, SymbolPlane& symbols,
                                              ByteWriter& side) const;
  [[nodiscard]] virtual Status DequantizeNative(const PlaneContext& plane,
                                                const SymbolPlane& symbols, ByteReader& side,
                                                const PlaneView& values) const;

  // True: FrameContext::artefact is set, and frames name it.
  [[nodiscard]] virtual bool needs_artefact() const { return false; }
  // True: codes tokens by what Classify made of their weights. Selectors stand only before these.
  [[nodiscard]] virtual bool honours_weights() const { return false; }
  // Of this plane kind. Default: kCalibrated when an artefact is needed, else kUnit.
  [[nodiscard]] virtual ScaleSource scale_source(PlaneKind kind) const;
  // The same quantizer row by row, if it can (real domain); owned by this object.
  [[nodiscard]] virtual const RowQuantizer* rows() const { return nullptr; }
  // The same quantizer by tiles in any order, if it can (real domain); owned by this object.
  [[nodiscard]] virtual const TileQuantizer* tiles() const { return nullptr; }
};

// A run of symbols that can be decoded alone: whole planes, or some rows of one plane.
struct SymbolPiece {
  std::size_t first_plane = 0;
  std::size_t planes = 1;
  std::uint32_t first_row = 0;  // symbol rows, of a plane that is cut; 0 otherwise
  std::uint32_t rows = 0;       // of a plane that is cut; 0: all rows of the planes
};

// The symbols of a frame, piece by piece and by many threads at once, so that a plane can be
// dequantized while its symbols are still in the cache. Lives in the frame's arena.
class SymbolReader {
 public:
  // In coding order; they cover every symbol once.
  [[nodiscard]] virtual std::span<const SymbolPiece> pieces() const = 0;
  // Fills exactly the symbols of a piece, planes one after the other.
  [[nodiscard]] virtual Status Read(std::size_t piece, std::span<std::uint8_t> symbols,
                                    Arena& scratch) const = 0;

 protected:
  ~SymbolReader() = default;
};

// The coding of a frame's symbols plane by plane and piece by piece, by many threads at once, so
// that it may go on beside the quantization of later planes. Lives in the frame's arena, and writes
// into what Codec::Begin was given.
class SymbolWriter {
 public:
  // In coding order; they cover every symbol once.
  [[nodiscard]] virtual std::span<const SymbolPiece> pieces() const = 0;
  // Once per plane, as soon as its symbols are there.
  [[nodiscard]] virtual Status Count(std::size_t plane) = 0;
  // In coding order, one at a time, when all planes up to the piece's last have been counted. Once
  // per piece; again for the same piece after an exception.
  virtual void Decide(std::size_t piece) = 0;
  // Once per piece that has been decided.
  virtual void Code(std::size_t piece, Arena& scratch) = 0;
  // After all of that.
  virtual void Finish() = 0;

 protected:
  ~SymbolWriter() = default;
};

// Codes the symbols of all planes of a frame into one stream, so that stream state and tables are
// shared by many layers. Decode gets planes with shapes, alphabets and classes set and fills their
// symbols; it must reject any symbol outside the alphabet. Bytes that it leaves are the caller's to
// reject.
class Codec {
 public:
  virtual ~Codec() = default;
  // Loops over planes may run on frame.workers; the bytes do not depend on how many there are.
  [[nodiscard]] virtual Status Encode(const FrameContext& frame,
                                      std::span<const SymbolPlane> planes,
                                      ByteWriter& out) const = 0;
  // Encode in steps, with the same bytes; `planes` have no symbols yet. Null: this codec encodes a
  // frame only whole.
  [[nodiscard]] virtual Result<SymbolWriter*> Begin(const FrameContext& frame,
                                                    std::span<const SymbolPlane> planes,
                                                    ByteWriter& out) const;
  [[nodiscard]] virtual Status Decode(const FrameContext& frame, ByteReader& in,
                                      std::span<SymbolPlane> planes) const = 0;
  // Upper bound of Encode's bytes for these shapes.
  [[nodiscard]] virtual std::uint64_t MaxEncodedBytes(
      std::span<const SymbolPlane> planes) const = 0;
  // Reads everything but the symbols and checks that the pieces end where `in` ends; Decode in
  // pieces. Null: this codec decodes a frame only whole.
  [[nodiscard]] virtual Result<const SymbolReader*> Open(const FrameContext& frame, ByteReader& in,
                                                         std::span<const SymbolPlane> planes) const;
  // True: FrameContext::artefact is set, and frames name it.
  [[nodiscard]] virtual bool needs_artefact() const { return false; }
  // Of this plane kind. Default: kCalibrated when an artefact is needed, else kUnit.
  [[nodiscard]] virtual ScaleSource scale_source(PlaneKind kind) const;
};

// ---- table -------------------------------------------------------------------------------------

// One row of the stage table: a description and the factory of its kind (the other three are null).
struct StageEntry {
  const StageInfo* info = nullptr;
  Result<std::unique_ptr<Selector>> (*make_selector)(const Settings&) = nullptr;
  Result<std::unique_ptr<Transform>> (*make_transform)(const Settings&) = nullptr;
  Result<std::unique_ptr<Quantizer>> (*make_quantizer)(const Settings&) = nullptr;
  Result<std::unique_ptr<Codec>> (*make_codec)(const Settings&) = nullptr;
};

// All stages of a build, passed in by the caller: the pipeline knows none by name.
using StageTable = std::span<const StageEntry>;

}  // namespace kvserve
