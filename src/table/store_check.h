/*
 * store_check.h
 *		Is a table still one that fairq can read and write directly?
 */
#ifndef FAIRQ_STORE_CHECK_H
#define FAIRQ_STORE_CHECK_H

#include "utils/rel.h"

extern void fairq_store_check(Relation rel, bool writes);

#endif							/* FAIRQ_STORE_CHECK_H */
