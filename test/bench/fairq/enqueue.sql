SELECT fairq.enqueue('bench', 'g' || :group, '$payload')
