BEGIN TRANSACTION;
CREATE TABLE accounts (
	account_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	preferred_class TEXT NOT NULL, 
	requests_per_minute BIGINT, tokens_per_minute BIGINT, concurrent_requests BIGINT, suspended_at_us BIGINT, search BOOLEAN DEFAULT 1 NOT NULL, memory BOOLEAN DEFAULT 1 NOT NULL, attachments BOOLEAN DEFAULT 1 NOT NULL, 
	PRIMARY KEY (account_id)
);
INSERT INTO "accounts" VALUES('acct_2yecy5tskq25kvjm','Ada',1794959537817407,'forte',600,NULL,NULL,NULL,1,1,1);
INSERT INTO "accounts" VALUES('acct_7ktuhzbvi55natsr','Bob',1794959540658623,'forte',NULL,NULL,NULL,1794959541517624,1,1,1);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE api_keys (
	key_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	scopes TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	pepper_version INTEGER NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	expires_at_us BIGINT, 
	revoked_at_us BIGINT, requests_per_minute BIGINT, tokens_per_minute BIGINT, concurrent_requests BIGINT, last_used_hour_us BIGINT, 
	PRIMARY KEY (key_id), 
	FOREIGN KEY(account_id) REFERENCES accounts (account_id)
);
INSERT INTO "api_keys" VALUES('key_3mS8NkLfLEi4SmaM','acct_2yecy5tskq25kvjm','used','',X'DAB5B947E4071511E3ED0083E6DA16EE71AEEC1F15BC65B897DC85E3192B7686',1,1794959544721972,NULL,NULL,NULL,NULL,20,1794956400000000);
INSERT INTO "api_keys" VALUES('key_uK89IWfd8ulJafmL','acct_2yecy5tskq25kvjm','revoked','',X'99679ADB82AEF93EA3A9250873E96A9C1E8D978B6D2438BA9FC678B732BD40A2',1,1794959545930815,NULL,1794959547485302,NULL,NULL,NULL,NULL);
INSERT INTO "api_keys" VALUES('key_s6ol7vyjkmdNHVys','acct_7ktuhzbvi55natsr','','',X'5905D7462CD7BDFC206C63F3017919E8381386077A3F4FD1FDD89220DDCA38D2',1,1794959551747673,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE epoch (
	row_no INTEGER NOT NULL, 
	value BIGINT NOT NULL, 
	forgotten BIGINT NOT NULL, peppers TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (row_no), 
	CONSTRAINT epoch_has_one_row CHECK (row_no = 1)
);
INSERT INTO "epoch" VALUES(1,6,2,'1:ba2dddafe92f1eca');
CREATE TABLE key_changes (
	epoch BIGINT NOT NULL, 
	key_id TEXT NOT NULL, 
	PRIMARY KEY (epoch, key_id)
);
INSERT INTO "key_changes" VALUES(5,'key_uK89IWfd8ulJafmL');
INSERT INTO "key_changes" VALUES(6,'key_3mS8NkLfLEi4SmaM');
CREATE INDEX accounts_by_age ON accounts (created_at_us, account_id);
CREATE INDEX api_keys_by_age ON api_keys (account_id, created_at_us, key_id);
COMMIT;
