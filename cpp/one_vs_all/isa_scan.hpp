// The kernel of the batch pass on packed rows (one_vs_all/batch_pass.hpp). Included by one_vs_all/isa_kernels.hpp once
// per instruction set, so there is no #pragma once. Twin: tests/reference/packed_rows.py.
//
// Measured alone on rows of yso-finna-en with AVX2, a pass over rows packed in advance takes 0.063 ms per label (0.060
// with 16-bit columns), compared with 0.10 for 16 labels in float32, 0.065 for 32 labels in float16, and 0.047 with
// products rounded to 16 bits (whose error grows with the length of a row). In the solver, packing rows as they are
// read is as fast; a third of the time goes to emitted rows. Prefetching only the rarer column of the pair that comes
// 48 entries later cost 10 %; one column per pair, from the end of a later row, saves 5 %.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

constexpr int SCAN_PARTS = SCAN_LANES / WIDTH;

// The sums of a row for all lanes. Unpacking works within 16 bytes, so part 2q holds the first four of every eight
// lanes of the q-th vector of a line, and part 2q + 1 the others.
struct SumLine {
    M part[SCAN_PARTS];
};
WIDEMARGIN_INLINE int lane_of(int place) {
    const int part = place / WIDTH, k = place % WIDTH;
    return part / 2 * 2 * WIDTH + k / 4 * 8 + part % 2 * 4 + k % 4;
}

// Values of two entries rounded to 16 bits, next to each other.
WIDEMARGIN_INLINE int32_t packed_pair(float x, float y) {
#ifdef WIDEMARGIN_X86
    const __m128i both = _mm_cvtps_epi32(_mm_setr_ps(x, y, 0.0f, 0.0f));
    return _mm_cvtsi128_si32(_mm_packs_epi32(both, both));
#else
    const int16_t both[2] = {static_cast<int16_t>(std::nearbyint(x)), static_cast<int16_t>(std::nearbyint(y))};
    int32_t pair;
    std::memcpy(&pair, both, sizeof pair);
    return pair;
#endif
}

// sums += x t + y u, x and y the halves of `pair`, t and u lines of the table
WIDEMARGIN_INLINE void add_lines(int32_t pair, const int16_t *t, const int16_t *u, SumLine &sums) {
#ifdef WIDEMARGIN_X86
    for (int q = 0; q < SCAN_PARTS / 2; ++q, t += 2 * WIDTH, u += 2 * WIDTH) {
#if WIDEMARGIN_ISA_WIDTH == 16
        const __m512i x = _mm512_set1_epi32(pair), a = _mm512_load_si512(t), b = _mm512_load_si512(u);
        sums.part[2 * q] += reinterpret_cast<M>(_mm512_madd_epi16(x, _mm512_unpacklo_epi16(a, b)));
        sums.part[2 * q + 1] += reinterpret_cast<M>(_mm512_madd_epi16(x, _mm512_unpackhi_epi16(a, b)));
#elif WIDEMARGIN_ISA_WIDTH == 8
        const __m256i x = _mm256_set1_epi32(pair), a = _mm256_load_si256(reinterpret_cast<const __m256i *>(t));
        const __m256i b = _mm256_load_si256(reinterpret_cast<const __m256i *>(u));
        sums.part[2 * q] += reinterpret_cast<M>(_mm256_madd_epi16(x, _mm256_unpacklo_epi16(a, b)));
        sums.part[2 * q + 1] += reinterpret_cast<M>(_mm256_madd_epi16(x, _mm256_unpackhi_epi16(a, b)));
#else
        const __m128i x = _mm_set1_epi32(pair), a = _mm_load_si128(reinterpret_cast<const __m128i *>(t));
        const __m128i b = _mm_load_si128(reinterpret_cast<const __m128i *>(u));
        sums.part[2 * q] += reinterpret_cast<M>(_mm_madd_epi16(x, _mm_unpacklo_epi16(a, b)));
        sums.part[2 * q + 1] += reinterpret_cast<M>(_mm_madd_epi16(x, _mm_unpackhi_epi16(a, b)));
#endif
    }
#else
    int16_t x[2];
    std::memcpy(x, &pair, sizeof x);
    int32_t *sum = reinterpret_cast<int32_t *>(sums.part);  // M may alias; with a width of 4, lanes are in order
    for (int lane = 0; lane < SCAN_LANES; ++lane) sum[lane] += x[0] * t[lane] + x[1] * u[lane];
#endif
}

// sums += Σ_k val_k table[col_k], for one row, two entries at a time
WIDEMARGIN_INLINE void add_packed_row(const RowEntry *e, const RowEntry *end, const RowEntry *later, float scale,
                                      const int16_t *table, SumLine &sums) {
    auto line = [&](uint32_t col) { return table + static_cast<size_t>(col) * SCAN_LANES; };
    for (; end - e >= 2; e += 2) {
        __builtin_prefetch(e + FAR_ENTRIES);
        __builtin_prefetch(line_before(later--, table, SCAN_LANES));
#ifdef WIDEMARGIN_X86
        const __m128 both = _mm_loadu_ps(reinterpret_cast<const float *>(e));  // column, value, column, value
        const __m128i x = _mm_cvtps_epi32(_mm_mul_ps(_mm_shuffle_ps(both, both, 0xdd), _mm_set1_ps(scale)));
        add_lines(_mm_cvtsi128_si32(_mm_packs_epi32(x, x)), line(e[0].col), line(e[1].col), sums);
#else
        add_lines(packed_pair(scale * e[0].val, scale * e[1].val), line(e[0].col), line(e[1].col), sums);
#endif
    }
    if (e != end) add_lines(packed_pair(scale * e->val, 0.0f), line(e->col), table, sums);
}

WIDEMARGIN_INLINE V to_float(M v) { return __builtin_convertvector(v, V); }

// Appends row i to a lane's list, and its entries to the lane's copy if there is room. Rows are sorted by length, so
// once a row does not fit, no later one does.
WIDEMARGIN_INLINE void emit(ScanArgs &args, int lane, int64_t i, int32_t sum) {
    const RowEntry *entries = args.entries + args.start[i];
    const uint32_t length = static_cast<uint32_t>(args.start[i + 1] - args.start[i]), begin = args.copied[lane];
    const int32_t allowance = args.allowance[i];
    const float unit = args.unit[lane], score = unit * static_cast<float>(sum - allowance) + args.bias[lane];
    const float slack = args.with_slack[lane] * args.slack[i] + unit * static_cast<float>(allowance);
    *args.out[lane]++ = {static_cast<uint32_t>(i), score, slack, begin};
    if (length > args.room[lane] - begin) return;
    RowEntry *copy = args.copies[lane] + begin;
    for (int ahead = 4; ahead < 6; ++ahead) __builtin_prefetch(copy + ahead * LINE_ENTRIES, 1);
    __builtin_prefetch(args.out[lane] + LINE_ENTRIES, 1);
    for (uint32_t k = 0; k < length; k += COPY_STEP) std::memcpy(copy + k, entries + k, COPY_STEP * sizeof(RowEntry));
    args.copied[lane] = begin + length;
}

// Rows of a block that are above the limit of some lane, with their sums. They are emitted when the block is scored: on
// yso-finna-en one row in three is among them, unpredictably. Without a branch for each row, and for each weight of an
// envelope, fits of 3,000 of its labels took 5 and 6 % less time in two pairs of runs.
constexpr int64_t SCAN_ROWS = 64;
struct FoundRows {
    int64_t count = 0;
    int64_t row[SCAN_ROWS + 1];
    uint32_t places[SCAN_ROWS + 1];  // bits, see lane_of
    alignas(LINE_BYTES) int32_t sums[SCAN_ROWS + 1][SCAN_LANES];
};

// Emits every row to the lanes whose limit is below its sum plus the row's allowance and the lane's share of slack.
static void scan(ScanArgs &args, int64_t begin, int64_t end) {
    const RowEntry *entries = args.entries;  // local copies so that they are not reloaded after every store
    const int64_t *start = args.start;
    const int16_t *table = args.table;
    const int32_t *allowance = args.allowance;
    const float *row_slack = args.slack;
    const float scale = args.scale;
    V limit[SCAN_PARTS], share[SCAN_PARTS];
    for (int place = 0; place < SCAN_LANES; ++place) {
        limit[place / WIDTH][place % WIDTH] = args.limit[lane_of(place)];
        share[place / WIDTH][place % WIDTH] = args.slack_share[lane_of(place)];
    }
    FoundRows found;
    for (int64_t block = begin; block < end; block += SCAN_ROWS) {
        found.count = 0;
        const int64_t ahead = rows_ahead(start, block);
        for (int64_t i = block; i < std::min(end, block + SCAN_ROWS); ++i) {
            SumLine sums;
            for (M &part : sums.part) part = M{} + allowance[i];
            const RowEntry *later = entries + start[std::min(i + ahead, end - 1) + 1];
            add_packed_row(entries + start[i], entries + start[i + 1], later, scale, table, sums);
            const V slack = splat(row_slack[i]);
            uint32_t bits = 0;
            for (int part = 0; part < SCAN_PARTS; ++part) {
                bits |= greater_bits(to_float(sums.part[part]) + slack * share[part], limit[part]) << (part * WIDTH);
            }
            std::memcpy(found.sums[found.count], &sums, sizeof sums);
            found.row[found.count] = i;
            found.places[found.count] = bits;
            found.count += bits != 0;
        }
        for (int64_t k = 0; k < found.count; ++k) {
            for (uint32_t bits = found.places[k]; bits != 0; bits &= bits - 1) {
                const int place = __builtin_ctz(bits);
                emit(args, lane_of(place), found.row[k], found.sums[k][place]);
            }
        }
    }
}

// GCC 12 converts vectors of bytes one by one.
WIDEMARGIN_INLINE M from_bytes(const uint8_t *p) {
#if defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 16
    return reinterpret_cast<M>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
#elif defined(WIDEMARGIN_X86) && WIDEMARGIN_ISA_WIDTH == 8
    return reinterpret_cast<M>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
#else
    M bytes;
    for (int k = 0; k < WIDTH; ++k) bytes[k] = p[k];
    return bytes;
#endif
}

static int64_t screen(int64_t n, const uint8_t *norms, float share, float limit, int32_t *sums, ScreenedRow *out) {
    ScreenedRow *next = out;
    const V factor = splat(share), least = splat(limit);
    for (int64_t i = 0; i < n; i += WIDTH) {
        M *line = reinterpret_cast<M *>(sums + i);
        const V norm = to_float(from_bytes(norms + i));
        uint32_t bits = greater_bits(to_float(*line) + factor * norm, least);
        for (; bits != 0; bits &= bits - 1) {
            const int k = __builtin_ctz(bits);
            *next++ = {static_cast<uint32_t>(i) + static_cast<uint32_t>(k), sums[i + k]};
        }
        *line = M{};
    }
    return next - out;
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
