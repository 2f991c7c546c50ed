/* SPDX-License-Identifier: MIT
 *
 * filter/theory.c -- what a filter's false positive rate is, exactly.
 *
 * Three questions, answered with sums of positive terms, so that nothing cancels:
 *
 *   1  q probes into B bits: how many different bits?       d(q, j)   j = 1..q
 *   2  b probes were set in B bits: are j given bits all set?  s(j, b)
 *   3  how many keys b / k fell into the line?              Binomial(n, 1 / lines)
 *
 *   rate = sum over loads  P(load) * sum over j  d(q, j) * s(j, k * load)
 *
 *   d(q, j) = d(q-1, j) * j / B      +  d(q-1, j-1) * (B-j+1) / B     last probe: old bit, new bit
 *   s(j, b) = s(j, b-1) * (B-j) / B  +  s(j-1, b-1) * j / B           first probe: beside j, on one
 *
 * s is stepped once a probe for all j together, about q operations. A standard filter is one line
 * of m bits with one load; when it holds too many probes to step, the share X of set bits is so
 * narrow that E[X^q] = mean^q * (1 + q (q-1) / 2 * variance / mean^2) is as good as exact.
 *
 * The mean field form (1 - e^(-kn/m))^k ignores question 3 and says 0.82 % where a blk512 of ten
 * bits has 0.97 %.
 *
 * Sources  the mixture over loads: Putze, Sanders, Singler, "Cache-, hash- and space-efficient
 * Bloom filters", 2007; the recurrences are elementary.
 *
 * Threads  pure functions, no allocation.
 */
#include "filter/theory.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include <tamis/filter.h>

#include "filter/geometry.h"
#include "filter/probe.h"

enum {
    QUERY_PROBES_MAX = 2 * TAMIS_FILTER_PROBES_MAX, // the mean square asks twice

    /* Beyond so many probes in a standard filter the expansion takes over: its error is then of
     * order (q^2 / probes)^2, below 1e-4 even for q = 30 and below 1e-6 for q = 7, and stepping
     * costs 3 ms. */
    STEPS_MAX = 100000,
};

/* Loads whose weight is below this share of the largest one cannot change a double. */
#define WEIGHT_MIN 1e-25

/* A line of 512 bits that has taken so many probes is full: the chance that one of 60 given bits is
 * still 0 is below 60 * exp(-60), nothing beside 1 in a double. */
#define PROBES_FULL (60.0 * TM_LINE_BITS)

/* Question 1 and 2 for one line of `bits` bits. */
struct line_model {
    uint32_t query_probes;
    double bits;
    double different[QUERY_PROBES_MAX + 1]; // d(q, j)
    double all_set[QUERY_PROBES_MAX + 1];   // s(j, b) for the b stepped so far
};

static void
line_model_init(struct line_model *model, double bits, uint32_t query_probes)
{
    assert(query_probes >= 1 && query_probes <= QUERY_PROBES_MAX);
    memset(model, 0, sizeof *model);
    model->query_probes = query_probes;
    model->bits = bits;
    model->different[0] = 1;
    for (uint32_t q = 1; q <= query_probes; q++) {
        for (uint32_t j = q; j >= 1; j--)
            model->different[j] =
                (model->different[j] * j + model->different[j - 1] * (bits - j + 1)) / bits;
        model->different[0] = 0;
    }
    model->all_set[0] = 1; // no bits are all set, even in an empty line
}

/* One more probe has been set. */
static void
line_model_step(struct line_model *model)
{
    double scale = 1 / model->bits;

    for (uint32_t j = model->query_probes; j >= 1; j--)
        model->all_set[j] += (model->all_set[j - 1] - model->all_set[j]) * (j * scale);
}

/* Chance that all query probes hit. */
static double
line_model_rate(const struct line_model *model)
{
    double rate = 0;

    for (uint32_t j = 1; j <= model->query_probes; j++)
        rate += model->different[j] * model->all_set[j];
    return rate;
}

double
tm_theory_standard_rate(uint64_t key_count, uint64_t bits, uint32_t insert_probes,
                        uint32_t query_probes)
{
    double n = (double)key_count * insert_probes;
    double m = (double)bits;
    struct line_model model;
    double log_empty, mean, variance;

    if (key_count == 0)
        return 0;
    if (n <= STEPS_MAX) {
        line_model_init(&model, m, query_probes);
        for (uint64_t i = 0; i < key_count * insert_probes; i++)
            line_model_step(&model);
        return line_model_rate(&model);
    }

    // Share of set bits: mean, and variance as of the number of empty bins after n balls in m.
    log_empty = n * log1p(-1 / m);
    mean = -expm1(log_empty);
    variance = exp(log_empty) / m * (1 - (1 + n / m) * exp(log_empty));
    if (variance < 0)
        variance = 0;
    return exp(query_probes * log(mean)) *
           (1 + query_probes * (query_probes - 1.0) / 2 * variance / (mean * mean));
}

double
tm_theory_line_rate(uint64_t key_count, uint64_t lines, uint32_t insert_probes,
                    uint32_t query_probes)
{
    double n = (double)key_count;
    double others = (double)lines - 1;
    double load_mean = n / (double)lines;
    double low, high, weight, weight_sum, rate_sum;
    struct line_model model;
    double probes = 0;

    if (key_count == 0)
        return 0;
    // Fewer keys than twelve standard deviations below the mean: a chance of exp(-72).
    if ((load_mean - 12 * sqrt(load_mean)) * insert_probes > PROBES_FULL)
        return 1;

    // Question 3. From the mode down to the lowest load that counts, then up through all of them.
    low = lines == 1 ? n : floor((n + 1) / (double)lines);
    high = lines == 1 ? n : INFINITY;
    weight = 1;
    while (lines > 1 && low > 0 && weight > WEIGHT_MIN) {
        weight *= low / (n - low + 1) * others; // P(low - 1) / P(low)
        low--;
    }
    line_model_init(&model, TM_LINE_BITS, query_probes);
    weight_sum = 0;
    rate_sum = 0;
    for (double load = low, weight_top = weight; load <= n && load <= high; load++) {
        for (; probes < load * insert_probes && probes < PROBES_FULL; probes++)
            line_model_step(&model);
        weight_sum += weight;
        rate_sum += weight * line_model_rate(&model);
        weight_top = fmax(weight_top, weight);
        if (load > load_mean && weight < weight_top * WEIGHT_MIN)
            break;
        weight *= (n - load) / (load + 1) / others; // P(load + 1) / P(load); not used for one line
    }
    return rate_sum / weight_sum;
}

/* Variance of the mean of `lines` independent lines' rates. */
static double
line_rate_variance(uint64_t key_count, uint64_t lines, uint32_t probes)
{
    double rate = tm_theory_line_rate(key_count, lines, probes, probes);
    double mean_square = tm_theory_line_rate(key_count, lines, probes, 2 * probes);

    return fmax(0, mean_square - rate * rate) / (double)lines;
}

static double
line_fill(uint64_t key_count, uint64_t lines, uint32_t probes)
{
    double hit_by_key = -expm1(probes * log1p(-1.0 / TM_LINE_BITS)); // a bit of the key's own line

    return -expm1((double)key_count * log1p(-hit_by_key / (double)lines));
}

double
tamis_theory_false_positive_rate(const tamis_filter_geometry *geometry)
{
    uint64_t n = geometry->key_count;

    switch (geometry->kind) {
    case TAMIS_FILTER_EMPTY_SET:
        return 0;
    case TAMIS_FILTER_STANDARD:
        return tm_theory_standard_rate(n, geometry->lines_a * TM_LINE_BITS, geometry->probes_a,
                                       geometry->probes_a);
    case TAMIS_FILTER_BLK512:
        return tm_theory_line_rate(n, geometry->lines_a, geometry->probes_a, geometry->probes_a);
    case TAMIS_FILTER_PAIR512: // the lines of a stranger are independent
        return tm_theory_line_rate(n, geometry->lines_a, geometry->probes_a, geometry->probes_a) *
               tm_theory_line_rate(n, geometry->lines_b, geometry->probes_b, geometry->probes_b);
    default:
        return 1;
    }
}

double
tamis_theory_fill(const tamis_filter_geometry *geometry)
{
    uint64_t n = geometry->key_count;
    double lines_a = (double)geometry->lines_a;
    double lines_b = (double)geometry->lines_b;

    switch (geometry->kind) {
    case TAMIS_FILTER_EMPTY_SET:
        return 0;
    case TAMIS_FILTER_STANDARD:
        return -expm1((double)n * geometry->probes_a * log1p(-1 / (lines_a * TM_LINE_BITS)));
    case TAMIS_FILTER_BLK512:
        return line_fill(n, geometry->lines_a, geometry->probes_a);
    case TAMIS_FILTER_PAIR512:
        return (lines_a * line_fill(n, geometry->lines_a, geometry->probes_a) +
                lines_b * line_fill(n, geometry->lines_b, geometry->probes_b)) /
               (lines_a + lines_b);
    default:
        return 1;
    }
}

double
tamis_theory_rate_variance(const tamis_filter_geometry *geometry)
{
    uint64_t n = geometry->key_count;
    double rate_a, rate_b, variance_a, variance_b;

    switch (geometry->kind) {
    case TAMIS_FILTER_BLK512:
        return line_rate_variance(n, geometry->lines_a, geometry->probes_a);
    case TAMIS_FILTER_PAIR512: // of a product of two independent means
        rate_a = tm_theory_line_rate(n, geometry->lines_a, geometry->probes_a, geometry->probes_a);
        rate_b = tm_theory_line_rate(n, geometry->lines_b, geometry->probes_b, geometry->probes_b);
        variance_a = line_rate_variance(n, geometry->lines_a, geometry->probes_a);
        variance_b = line_rate_variance(n, geometry->lines_b, geometry->probes_b);
        return variance_a * rate_b * rate_b + variance_b * rate_a * rate_a +
               variance_a * variance_b;
    default:
        return 0;
    }
}

double
tamis_theory_bits_for_rate(tamis_filter_kind kind, uint64_t key_count, double rate)
{
    uint32_t low = 0; // thousandths of a bit: too few
    uint32_t high = 1000 * (uint32_t)TAMIS_FILTER_BITS_PER_KEY_MAX;

    if (rate >= 1 || key_count == 0 || kind == TAMIS_FILTER_EMPTY_SET ||
        kind == TAMIS_FILTER_ALWAYS_TRUE)
        return 0;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        tamis_filter_geometry geometry;

        if (tamis_filter_plan(kind, key_count, middle / 1000.0, &geometry) &&
            tamis_theory_false_positive_rate(&geometry) <= rate)
            high = middle;
        else
            low = middle;
    }
    return high / 1000.0;
}
