/*
 * seats.c
 *		Sets of groups, in the order of their seats.
 *
 * A set is a treap: a search tree by group_no that is a heap by a hash of
 * group_no, and so of logarithmic depth whatever the order of the insertions.
 * Its nodes are the groups' entries themselves, linked by index (see shmem.h).
 * An entry is in at most one set.  Nothing is allocated and nothing can fail,
 * so sets are changed from commit and abort callbacks too.
 *
 * Locking: the caller holds the lock of the lane that the set belongs to,
 * exclusively to change it.
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "seats.h"

static uint32
rank(int32 index)
{
	return murmurhash32((uint32) fairq_group_at(index)->group_no);
}

/* Split a tree into those before group_no and the others. */
static void
split(int32 tree, int32 group_no, int32 *before, int32 *others)
{
	while (tree != FAIRQ_NOBODY)
	{
		FairqGroup *group = fairq_group_at(tree);

		if (group->group_no < group_no)
		{
			*before = tree;
			before = &group->right;
			tree = group->right;
		}
		else
		{
			*others = tree;
			others = &group->left;
			tree = group->left;
		}
	}
	*before = *others = FAIRQ_NOBODY;
}

/* The group must not be in a set. */
void
fairq_seats_insert(int32 *root, FairqGroup *group)
{
	int32		self = fairq_group_index(group);

	while (*root != FAIRQ_NOBODY && rank(*root) >= rank(self))
	{
		FairqGroup *at = fairq_group_at(*root);

		root = group->group_no < at->group_no ? &at->left : &at->right;
	}
	split(*root, group->group_no, &group->left, &group->right);
	*root = self;
}

/* The group must be in that set. */
void
fairq_seats_remove(int32 *root, FairqGroup *group)
{
	int32		self = fairq_group_index(group);
	int32		before = group->left;
	int32		behind = group->right;

	while (*root != self)
	{
		FairqGroup *at = fairq_group_at(*root);

		root = group->group_no < at->group_no ? &at->left : &at->right;
	}
	while (before != FAIRQ_NOBODY && behind != FAIRQ_NOBODY)
	{
		if (rank(before) > rank(behind))
		{
			*root = before;
			root = &fairq_group_at(before)->right;
			before = *root;
		}
		else
		{
			*root = behind;
			root = &fairq_group_at(behind)->left;
			behind = *root;
		}
	}
	*root = before != FAIRQ_NOBODY ? before : behind;
}

/* The first group at or behind that seat; NULL if there is none. */
FairqGroup *
fairq_seats_from(int32 root, int32 group_no)
{
	FairqGroup *best = NULL;

	while (root != FAIRQ_NOBODY)
	{
		FairqGroup *group = fairq_group_at(root);

		if (group->group_no >= group_no)
		{
			best = group;
			root = group->left;
		}
		else
			root = group->right;
	}
	return best;
}
