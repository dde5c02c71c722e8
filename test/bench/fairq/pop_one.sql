SELECT id, attempt FROM fairq.pop('bench')
