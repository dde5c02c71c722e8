/*
 * domain.c
 *		What of shared memory is this extension's: its keys, and its domain.
 *
 * What is kept of a database is known by the database's OID and birth and the
 * OID of fairq.task, so neither an extension that was dropped and created again
 * nor a database that was made anew under its old OID meets what was known of
 * the old one.
 *
 * Locking: none.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "common/hashfn.h"
#include "miscadmin.h"

#include "catalog.h"
#include "domain.h"

/*
 * What tells a database from one that had its OID before: the file that CREATE
 * DATABASE writes, and which does not change.  A backend's database stays the
 * same.
 */
static uint64
database_born(void)
{
	static uint64 born = 0;
	char		path[MAXPGPATH];
	struct stat st;
	uint64		made[3];

	if (born != 0)
		return born;
	snprintf(path, sizeof(path), "%s/PG_VERSION", DatabasePath);
	if (stat(path, &st) != 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not stat file \"%s\": %m", path));
	made[0] = st.st_ino;
	made[1] = st.st_mtim.tv_sec;
	made[2] = st.st_mtim.tv_nsec;
	born = hash_bytes_extended((const unsigned char *) made, sizeof(made), 0);
	return born;
}

/* What belongs to that fairq.task of this database. */
FairqQueueKey
fairq_key_of(Oid task, int32 queue_id, int32 group_no)
{
	FairqQueueKey key = {
		.born = database_born(),
		.database = MyDatabaseId,
		.task = task,
		.queue_id = queue_id,
		.group_no = group_no
	};

	return key;
}

FairqQueueKey
fairq_key(int32 queue_id, int32 group_no)
{
	return fairq_key_of(fairq_catalog()->task, queue_id, group_no);
}

/* Kept until fairq.task is another one: hot paths ask for it row by row. */
int32
fairq_domain_index(void)
{
	static Oid	known_task = InvalidOid;
	static int32 index;
	Oid			task = fairq_catalog()->task;

	if (task != known_task)
	{
		FairqQueueKey key = fairq_key_of(task, 0, -1);

		index = hash_bytes((const unsigned char *) &key, sizeof(key)) % FAIRQ_DOMAINS;
		known_task = task;
	}
	return index;
}

FairqDomain *
fairq_domain(void)
{
	fairq_shmem_attach();
	return fairq_domain_at(fairq_domain_index());
}
