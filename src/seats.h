/*
 * seats.h
 *		Sets of groups, in the order of their seats.
 */
#ifndef FAIRQ_SEATS_H
#define FAIRQ_SEATS_H

#include "shmem.h"

#define FAIRQ_NOBODY (-1)

extern void fairq_seats_insert(int32 *root, FairqGroup *group);
extern void fairq_seats_remove(int32 *root, FairqGroup *group);
extern FairqGroup *fairq_seats_from(int32 root, int32 group_no);

#endif							/* FAIRQ_SEATS_H */
