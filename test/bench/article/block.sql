CREATE TABLE article.blocked (group_key text PRIMARY KEY);
INSERT INTO article.blocked VALUES ('blocked');
INSERT INTO article.group_pointer (group_key) VALUES ('blocked');
