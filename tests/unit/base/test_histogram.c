/* Histograms: the bucket of a time, at the edges; and quantiles. */
#include "base/histogram.h"
#include "testing/test.h"

TEST(histogram_buckets_end_at_powers_of_two_microseconds)
{
    assert_int_equal(histogram_bucket(0), 0);
    assert_int_equal(histogram_bucket(1000), 0);
    assert_int_equal(histogram_bucket(1001), 1);
    for (uint32_t i = 1; i < HISTOGRAM_BUCKETS - 1; i++) {
        assert_int_equal(histogram_bucket(histogram_bound_us(i) * 1000), i);
        assert_int_equal(histogram_bucket(histogram_bound_us(i) * 1000 + 1), i + 1);
    }
    assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

TEST(histogram_tells_how_many_stay_below_a_bound)
{
    struct histogram h = {0};

    assert_int_equal(histogram_quantile_us(&h, 500), 0);
    for (uint32_t i = 0; i < 98; i++)
        histogram_add(&h, 3000);
    histogram_add(&h, 900000);
    histogram_add(&h, 70000000);
    assert_int_equal(h.n, 100);
    assert_int_equal(h.sum_ns, 98 * 3000 + 900000 + 70000000);
    assert_int_equal(histogram_quantile_us(&h, 500), 4);
    assert_int_equal(histogram_quantile_us(&h, 980), 4);
    assert_int_equal(histogram_quantile_us(&h, 990), 1024);
    assert_int_equal(histogram_quantile_us(&h, 1000), 131072);
}
