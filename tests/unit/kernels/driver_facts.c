#include "unit/kernels/driver_facts.h"
#include "kernels/driver.h"

const struct driver_fact facts_ours[] = {DRIVER_FACTS(FACT_SIZE, FACT_PLACE, FACT_VALUE)};
const size_t facts_ours_n = sizeof facts_ours / sizeof facts_ours[0];
