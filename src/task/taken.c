/*
 * taken.c
 *		Tasks that this transaction has taken.
 *
 * fairq.take() deletes a task's row.  The worker can still fail or release the
 * task, in the same transaction.  Then the task is written again, from the
 * deleted row; it has no lease, and its slot is already free.  So before the
 * commit a taken task has not ended for the tasks that wait for it
 * (blocked.c).
 *
 * A note has the row's TID and file, because CLUSTER and similar commands move
 * rows or drop deleted ones.  After such a command the task cannot be found.
 * So a call that ends its attempt raises an error, and the rollback gives the
 * task back.  A note also has the id of the (sub)transaction that took the
 * task, and of the one that has put it back.  A note is valid while the first
 * of these belongs to the present transaction, and the second does not.  So no
 * code here reverts notes of a subtransaction that was rolled back.  A task
 * that is put back can be taken again and so may have several notes.  At most
 * one of these notes is valid.  Most transactions neither put a task back nor
 * check a blocked task.  So notes form a list, and the first search for one
 * makes a hash table to find them.
 *
 * Locking: none; the notes belong to this backend.
 */
#include "postgres.h"

#include "access/xact.h"

#include "compat.h"
#include "taken.h"
#include "tools.h"

/* no note */
#define NO_NOTE (-1)

/* A task that was taken. */
typedef struct Taken
{
	int64		id;				/* id of the task */
	int64		batch;			/* id of the task's batch; 0: none */
	TimestampTz at;				/* time at which the task was taken */
	int32		attempt;		/* number of the attempt that began then */
	TransactionId by;			/* transaction, or subtransaction, that has
								 * taken the task */
	TransactionId ended_by;		/* transaction, or subtransaction, that has
								 * ended the attempt; invalid: none has */
	int32		before;			/* earlier note of the same task; NO_NOTE:
								 * none.  Set when this note is in the index */
	int32		before_in_batch;	/* earlier note of a task of the same
									 * batch; NO_NOTE: none */
	ItemPointerData tid;		/* TID of the row that was deleted */
	FairqFile	file;			/* file that contains the row */
} Taken;

/* The last note of a task, or of a batch's tasks. */
typedef struct LastNote
{
	int64		key;			/* id of the task, or FAIRQ_TAKEN_OF() the
								 * batch; hash key */
	int32		note;			/* index of the note */
} LastNote;

static Taken *notes = NULL;		/* in TopTransactionContext */
static int32 nnotes = 0;
static int32 max_notes = 0;
static HTAB *last_notes = NULL; /* the last note of each key; NULL: no search
								 * so far */
static int32 nindexed = 0;		/* number of notes that are in last_notes */

/*
 * Record that this transaction has taken a task, whose row it has just
 * deleted.
 */
void
fairq_taken_note(FairqTable *tasks, const FairqTask *task, TimestampTz at)
{
	Taken	   *note;

	if (nnotes == max_notes)
		notes = fairq_grow(TopTransactionContext, notes, &max_notes, 16,
						   sizeof(Taken));
	note = &notes[nnotes++];
	note->id = task->id;
	note->batch = task->batch;
	note->at = at;
	note->attempt = task->attempt;
	note->by = GetCurrentTransactionId();
	note->ended_by = InvalidTransactionId;
	note->tid = task->tid;
	note->file = fairq_file(tasks->rel);
}

/*
 * Refuse if the table has been rewritten since the task was taken, because the
 * deleted row is no longer in its place.
 */
static void
check_file(FairqTable *tasks, const Taken *note)
{
	FairqFile	file = fairq_file(tasks->rel);

	if (memcmp(&file, &note->file, sizeof(FairqFile)) != 0)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("cannot fail or release task " INT64_FORMAT ": fairq.task was rewritten after this transaction had taken it",
					   note->id),
				errhint("Roll back the transaction; the task is then ready again."));
}

/*
 * Make this note the last one of its key.  Returns the previous note of the
 * key.
 */
static int32
index_note(int64 key, int32 n)
{
	bool		found;
	LastNote   *last = hash_search(last_notes, &key, HASH_ENTER, &found);
	int32		before = found ? last->note : NO_NOTE;

	last->note = n;
	return before;
}

/* Add the notes that are not in the index yet. */
static void
index_notes(void)
{
	if (last_notes == NULL)
		last_notes = fairq_hash(TopTransactionContext, "fairq taken tasks",
								sizeof(int64), sizeof(LastNote));
	for (; nindexed < nnotes; nindexed++)
	{
		Taken	   *note = &notes[nindexed];

		note->before = index_note(note->id, nindexed);
		if (note->batch != 0)
			note->before_in_batch = index_note(FAIRQ_TAKEN_OF(note->batch),
											   nindexed);
	}
}

/*
 * The note of a task that is taken and not put back, or of any such task of a
 * batch; NULL: none.
 */
static Taken *
find_note(int64 key)
{
	LastNote   *last;
	int32		n;

	if (nnotes == 0)
		return NULL;
	index_notes();
	last = hash_search(last_notes, &key, HASH_FIND, NULL);
	n = last == NULL ? NO_NOTE : last->note;
	while (n != NO_NOTE)
	{
		Taken	   *note = &notes[n];

		if (TransactionIdIsCurrentTransactionId(note->by) &&
			!(TransactionIdIsValid(note->ended_by) &&
			  TransactionIdIsCurrentTransactionId(note->ended_by)))
			return note;
		n = key == note->id ? note->before : note->before_in_batch;
	}
	return NULL;
}

/*
 * Find a task that this transaction has taken, in the given attempt or in any,
 * and that was not put back.  Then tasks->locked.slot has the deleted row.
 * *task has that attempt and is marked as taken, since it has no lease.
 */
bool
fairq_taken_find(FairqTable *tasks, int64 id, int32 attempt, FairqTask *task)
{
	Taken	   *note = find_note(id);

	if (note == NULL ||
		(attempt != FAIRQ_ANY_ATTEMPT && note->attempt != attempt))
		return false;
	check_file(tasks, note);
	if (!fairq_task_find_deleted(tasks, &note->tid, note->by, task) ||
		task->id != id)
		return false;
	task->taken = true;
	/* the task was leased, so its lease had expired */
	task->lapses += task->running;
	task->running = false;
	task->attempt = note->attempt;
	task->popped_at = note->at;
	return true;
}

/*
 * Whether this transaction may put back the task with this id.  If the key is
 * FAIRQ_TAKEN_OF() a batch: whether it may put back a task of the batch.
 */
bool
fairq_is_taken(int64 key)
{
	return find_note(key) != NULL;
}

/* Whether this transaction may put back tasks that have no rows. */
bool
fairq_taken_any(void)
{
	return nnotes > 0;
}

/* Record that the attempt of a taken task has ended. */
void
fairq_taken_ended(int64 id)
{
	find_note(id)->ended_by = GetCurrentTransactionId();
}

/*
 * Forget the notes, because the transaction has ended, and their memory is
 * freed with it.
 */
void
fairq_taken_settle(void)
{
	notes = NULL;
	last_notes = NULL;
	nnotes = max_notes = nindexed = 0;
}
