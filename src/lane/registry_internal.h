/*
 * registry_internal.h
 *		The hash tables of the registry, for the files next to registry.c.
 */
#ifndef FAIRQ_REGISTRY_INTERNAL_H
#define FAIRQ_REGISTRY_INTERNAL_H

#include "lib/dshash.h"

#include "registry.h"

typedef struct FairqQueueEntry
{
	FairqQueueKey key;
	dsa_pointer hints;
} FairqQueueEntry;

typedef struct FairqCounterEntry
{
	FairqQueueKey key;
	FairqCounter counter;
} FairqCounterEntry;

/* This backend's view of the registry; NULL until it has attached. */
typedef struct FairqRegistryView
{
	FairqRegistry *registry;	/* handles and lists */
	dshash_table *queues;		/* FairqQueueEntry, by key */
	dshash_table *counters;		/* FairqCounterEntry, by key */
	dshash_table *extensions;	/* entries of extensions, by key */
} FairqRegistryView;

extern FairqRegistryView fairq_view;

extern void fairq_registry_attach(void);
extern void *fairq_registry_insert(dshash_table *table,
								   const FairqQueueKey *key, bool *found);
extern void fairq_reclaim_dropped(void);
extern bool fairq_is_of_extension(const FairqQueueKey *key,
								  const FairqQueueKey *extension);

#endif							/* FAIRQ_REGISTRY_INTERNAL_H */
