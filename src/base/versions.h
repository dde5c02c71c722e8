/*
 * versions.h
 *		Versions of a queue's settings, and the changes between them.
 */
#ifndef FAIRQ_VERSIONS_H
#define FAIRQ_VERSIONS_H

#include "port/atomics.h"
#include "storage/spin.h"

/*
 * number of changes that are kept; a backend that missed more reads all
 * settings
 */
#define FAIRQ_CHANGES_KEPT 256

/* The kind of a change, if it is not a group's number. */
#define FAIRQ_QUEUE_CHANGED (-1)	/* the queue's own settings, privileges */
#define FAIRQ_ALL_CHANGED (-2)	/* the queue's settings, privileges, and
								 * settings of any groups */

/* In shared memory, part of FairqHints. */
typedef struct FairqVersions
{
	slock_t		mutex;			/* spinlock of changes */
	pg_atomic_uint64 now;		/* present version, written under mutex; only
								 * increases, even if another queue gets these
								 * hints */
	int32		changes[FAIRQ_CHANGES_KEPT];	/* the last changes: the change
												 * to version v is at (v - 1) %
												 * FAIRQ_CHANGES_KEPT */
} FairqVersions;

extern void fairq_versions_init(FairqVersions *versions);
extern void fairq_version_up(FairqVersions *versions, int32 change);
extern int	fairq_changes_since(FairqVersions *versions, uint64 version,
								int32 *changes, uint64 *now);

#endif							/* FAIRQ_VERSIONS_H */
