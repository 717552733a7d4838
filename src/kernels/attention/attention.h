// Attention of queries over the keys of one head: products, softmax and quadratic forms.
#pragma once

#include <cstddef>
#include <span>

namespace kvserve {

// All is bit-identical on every instruction set: each operation is rounded alone, in a stated
// order. Values are finite; others give unspecified results and nothing worse.

// Keys of one head are packed in blocks of 32 tokens, [block][dim][token of the block]; the last
// block is filled up with zeros.
inline constexpr std::size_t kKeyBlock = 32;
[[nodiscard]] constexpr std::size_t PackedTokens(std::size_t tokens) {
  return (tokens + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
}

// Packs head `head` of rows [token, head, dim] of `heads` heads into PackedTokens(tokens) * dim
// floats.
void PackKeys(std::span<const float> rows, std::size_t heads, std::size_t head, std::size_t dim,
              std::span<float> packed);

// products[row][token] = sum over d of queries[row][d] * key[token][d], d ascending from zero, for
// all packed tokens of `packed`.
void KeyProducts(std::span<const float> queries, std::span<const float> packed, std::size_t dim,
                 std::span<float> products);

// forms[token] = sum over i of key[token][i] * (sum over j of matrix[i][j] * key[token][j]), both
// ascending from zero, for all packed tokens.
void QuadraticForms(std::span<const float> matrix, std::span<const float> packed, std::size_t dim,
                    std::span<float> forms);

// squares[token] = sum over d of key[token][d]^2, d ascending from zero.
void SumSquares(std::span<const float> packed, std::size_t dim, std::span<float> squares);

// sums[d] = sum over all packed tokens of weights[token] * key[token][d], in 32 sums over the
// tokens i mod 32, which are then added in ascending order.
void SumWeighted(std::span<const float> weights, std::span<const float> packed,
                 std::span<float> sums);

// What a softmax divides by: sum of e^(scale * (logit - largest)).
struct SoftmaxSum {
  float largest = 0.0F;  // logit
  float sum = 0.0F;      // 0: there was none
};

// Adds the softmax of scale * logits to `mass`, one element each; scale > 0. `logits` is
// overwritten. Exponentials have a relative error below 2e-7 and are e^-87 at least; they are
// summed in 16 sums over the elements i mod 16, which are then added by halves.
SoftmaxSum AddSoftmax(std::span<float> logits, float scale, std::span<float> mass);

// Oracles.
void KeyProductsRef(std::span<const float> queries, std::span<const float> packed, std::size_t dim,
                    std::span<float> products);
void QuadraticFormsRef(std::span<const float> matrix, std::span<const float> packed,
                       std::size_t dim, std::span<float> forms);
void SumSquaresRef(std::span<const float> packed, std::size_t dim, std::span<float> squares);
void SumWeightedRef(std::span<const float> weights, std::span<const float> packed,
                    std::span<float> sums);
SoftmaxSum AddSoftmaxRef(std::span<float> logits, float scale, std::span<float> mass);

}  // namespace kvserve
