/*
 * versions.c
 *		Versions of a queue's settings, and the changes between them.
 *
 * A queue's version increases with each change of its settings, of those of
 * one of its groups, and of its privileges.  A ring buffer holds the last
 * changes.  So a backend with settings of an older version rereads only the
 * groups that have changed since.  A backend that has missed more changes than
 * the ring keeps reads all settings again.
 *
 * Locking: the mutex, for changes.  Only the version is read without it.
 */
#include "postgres.h"

#include "versions.h"

void
fairq_versions_init(FairqVersions *versions)
{
	SpinLockInit(&versions->mutex);
	pg_atomic_init_u64(&versions->now, 0);
	for (int i = 0; i < FAIRQ_CHANGES_KEPT; i++)
		versions->changes[i] = FAIRQ_ALL_CHANGED;
}

/*
 * Increase the version; change is a group's number, or a constant of
 * versions.h.
 */
void
fairq_version_up(FairqVersions *versions, int32 change)
{
	uint64		now;

	SpinLockAcquire(&versions->mutex);
	now = pg_atomic_read_u64(&versions->now);
	versions->changes[now % FAIRQ_CHANGES_KEPT] = change;
	pg_atomic_write_u64(&versions->now, now + 1);
	SpinLockRelease(&versions->mutex);
}

/*
 * Returns the number of changes since a version, at most FAIRQ_CHANGES_KEPT,
 * and copies them; -1 if there are more.  *now is the present version.
 */
int
fairq_changes_since(FairqVersions *versions, uint64 version, int32 *changes,
					uint64 *now)
{
	int			n = -1;

	SpinLockAcquire(&versions->mutex);
	*now = pg_atomic_read_u64(&versions->now);
	if (*now - version <= FAIRQ_CHANGES_KEPT)
	{
		for (n = 0; version + n < *now; n++)
			changes[n] = versions->changes[(version + n) % FAIRQ_CHANGES_KEPT];
	}
	SpinLockRelease(&versions->mutex);
	return n;
}
