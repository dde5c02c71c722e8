/*
 * catalog.h
 *		fairq's tables: their OIDs, and the numbers of their columns.
 */
#ifndef FAIRQ_CATALOG_H
#define FAIRQ_CATALOG_H

#include "storage/lockdefs.h"
#include "utils/relcache.h"

/* fairq.task, by attribute number */
enum
{
	TASK_ID = 1,
	TASK_ADDR,
	TASK_ENQUEUED_AT,
	TASK_QUEUE_ID,
	TASK_GROUP_NO,
	TASK_LANE,
	TASK_PRIORITY,
	TASK_CANCELLED,
	TASK_ATTEMPT,
	TASK_LEASE_UNTIL,
	TASK_POPPED_AT,
	TASK_RUN_AT,
	TASK_MAX_ATTEMPTS,
	TASK_RELEASED,
	TASK_LAPSES,
	TASK_COST,
	TASK_PAYLOAD,
	TASK_WORKER,
	TASK_DEDUP_KEY,
	TASK_ERROR,
	TASK_HEADERS,
	TASK_PROGRESS,
	TASK_UNTIL_STARTED,
	TASK_DEDUP_FOR,
	TASK_EXPIRES_AT,
	TASK_NATTS = TASK_EXPIRES_AT
};

/* fairq.dedup */
enum
{
	DEDUP_QUEUE_ID = 1,
	DEDUP_KEY,
	DEDUP_TASK_ID,
	DEDUP_FREE_AT,
	DEDUP_NATTS = DEDUP_FREE_AT
};

/* fairq.archive */
enum
{
	ARCHIVE_ID = 1,
	ARCHIVE_ENQUEUED_AT,
	ARCHIVE_FINISHED_AT,
	ARCHIVE_QUEUE_ID,
	ARCHIVE_ATTEMPT,
	ARCHIVE_PRIORITY,
	ARCHIVE_STATUS,
	ARCHIVE_POPPED_AT,
	ARCHIVE_RUN_AT,
	ARCHIVE_MAX_ATTEMPTS,
	ARCHIVE_LAPSES,
	ARCHIVE_RELEASED,
	ARCHIVE_COST,
	ARCHIVE_PAYLOAD,
	ARCHIVE_GROUP_KEY,
	ARCHIVE_WORKER,
	ARCHIVE_DEDUP_KEY,
	ARCHIVE_ERROR,
	ARCHIVE_RESULT,
	ARCHIVE_HEADERS,
	ARCHIVE_PROGRESS,
	ARCHIVE_UNTIL_STARTED,
	ARCHIVE_DEDUP_FOR,
	ARCHIVE_EXPIRES_AT,
	ARCHIVE_NATTS = ARCHIVE_EXPIRES_AT
};

/* fairq.group_number */
enum
{
	NUMBER_QUEUE_ID = 1,
	NUMBER_GROUP_NO,
	NUMBER_GROUP_KEY,
	NUMBER_NATTS = NUMBER_GROUP_KEY
};

/* fairq.queue */
enum
{
	QUEUE_ID = 1,
	QUEUE_BLOCK_LENGTH,
	QUEUE_PAUSED,
	QUEUE_NAME,
	QUEUE_LEASE,
	QUEUE_MAX_ATTEMPTS,
	QUEUE_NOTIFY,
	QUEUE_BACKOFF,
	QUEUE_CONCURRENCY,
	QUEUE_MAX_RUNNING,
	QUEUE_RETAIN,
	QUEUE_FAIR_BY,
	QUEUE_RATE,
	QUEUE_PER,
	QUEUE_BURST,
	QUEUE_MAX_RATE,
	QUEUE_SHARES,
	QUEUE_IN_ORDER,
	QUEUE_HELD_UNTIL,
	QUEUE_RETAIN_FAILED,
	QUEUE_MAX_RUN,
	QUEUE_NATTS = QUEUE_MAX_RUN
};

/* fairq.group_setting */
enum
{
	SETTING_QUEUE_ID = 1,
	SETTING_GROUP_NO,
	SETTING_WEIGHT,
	SETTING_PAUSED,
	SETTING_CONCURRENCY,
	SETTING_RATE,
	SETTING_HELD_UNTIL,
	SETTING_NATTS = SETTING_HELD_UNTIL
};

/* fairq.queue_privilege */
enum
{
	PRIVILEGE_QUEUE_ID = 1,
	PRIVILEGE_ROLE,
	PRIVILEGE_PRIVILEGE,
	PRIVILEGE_NATTS = PRIVILEGE_PRIVILEGE
};

/* The OIDs of what CREATE EXTENSION made, looked up once per backend. */
typedef struct FairqCatalog
{
	Oid			task;			/* OID of fairq.task */
	Oid			group_number;	/* OID of fairq.group_number */
	Oid			queue;			/* OID of fairq.queue */
	Oid			setting;		/* OID of fairq.group_setting */
	Oid			privilege;		/* OID of fairq.queue_privilege */
	Oid			dedup;			/* OID of fairq.dedup */
	Oid			archive;		/* OID of fairq.archive */
	Oid			task_id_seq;	/* OID of fairq.task_id_seq */
	Oid			owner;			/* owner of fairq.task, and so of all tables */
} FairqCatalog;

extern const FairqCatalog *fairq_catalog(void);
extern bool fairq_catalog_is_valid(void);
extern uint64 fairq_catalog_changes(void);
extern bool fairq_extension_exists(void);
extern bool fairq_is_task_table(Oid relid);
extern bool fairq_catalog_has(Oid relid);
extern bool fairq_catalog_is_task(Oid relid);
extern Relation fairq_open_relation(Oid relid, LOCKMODE lockmode);

#endif							/* FAIRQ_CATALOG_H */
