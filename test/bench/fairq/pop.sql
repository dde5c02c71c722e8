SELECT coalesce(array_agg(id), '{}') AS ids FROM fairq.pop('bench', $n)
