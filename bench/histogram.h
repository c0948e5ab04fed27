/* A log-linear histogram of durations, after HdrHistogram: 128 sub-buckets per power of two, so that any value up to
 * about 10 minutes is kept within 0.8 %. Units: nanoseconds in, nanoseconds out. */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 7
#define HISTOGRAM_SUB (1 << HISTOGRAM_SUB_BITS)
#define HISTOGRAM_BUCKETS (HISTOGRAM_SUB * 34)

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
    int64_t max_ns;
    double sum_ns;
};

/* Values below 2 * SUB are their own bucket; above, the top SUB_BITS + 1 bits choose it. */
static inline int histogram_bucket(int64_t value_ns) {
    uint64_t value = value_ns < 0 ? 0 : (uint64_t)value_ns;
    if (value < 2 * HISTOGRAM_SUB) return (int)value;
    int shift = 63 - __builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    int bucket = (shift << HISTOGRAM_SUB_BITS) + (int)(value >> shift);
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* The middle of a bucket. */
static inline double histogram_value(int bucket) {
    if (bucket < 2 * HISTOGRAM_SUB) return bucket;
    int shift = (bucket >> HISTOGRAM_SUB_BITS) - 1;
    uint64_t low = (uint64_t)(bucket - (shift << HISTOGRAM_SUB_BITS)) << shift;
    return (double)low + (double)((uint64_t)1 << shift) / 2.0;
}

static inline void histogram_record(struct histogram *h, int64_t value_ns) {
    h->counts[histogram_bucket(value_ns)]++;
    h->total++;
    h->sum_ns += (double)value_ns;
    if (value_ns > h->max_ns) h->max_ns = value_ns;
}

/* The value below which `fraction` (0..1) of the recorded ones lie; 0 when nothing was recorded. */
static inline double histogram_quantile(const struct histogram *h, double fraction) {
    uint64_t rank = (uint64_t)(fraction * (double)h->total), seen = 0;
    if (h->total == 0) return 0;
    if (rank >= h->total) rank = h->total - 1;
    for (int bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += h->counts[bucket];
        if (seen > rank) {
            double value = histogram_value(bucket);
            return value < (double)h->max_ns ? value : (double)h->max_ns;
        }
    }
    return (double)h->max_ns;
}

#endif
