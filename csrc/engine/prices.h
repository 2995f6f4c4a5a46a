/* SPDX-License-Identifier: MIT
 *
 * prices.h - what links cost, as all members of a view know it: measured where the view says so, else assumed.
 *
 * Must not know: plans, channels. A price is nothing but a guess at which of several right ways is the quickest; all
 * that matters is that every member makes the same one.
 */
#ifndef PCCL_ENGINE_PRICES_H
#define PCCL_ENGINE_PRICES_H

#include <stdbool.h>
#include <stddef.h>

#include "pccl.h"
#include "plan/plan.h"

/* The view's prices with defaults where it has none. In a group on one host all links are `inside`. */
struct pccl__link_models pccl__prices_models(const pccl_prices *prices, bool one_host);
/* "15 us and 2 GB/s a link (assumed)", or, for several hosts, "... inside a host (assumed), ... between hosts
 * (measured)". */
void pccl__prices_text(const pccl_prices *prices, bool one_host, char *text, size_t text_bytes);

#endif
