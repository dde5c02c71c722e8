SELECT id, group_key, payload FROM fairq.take('bench', $n)
