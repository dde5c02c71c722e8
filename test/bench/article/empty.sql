TRUNCATE article.task;
