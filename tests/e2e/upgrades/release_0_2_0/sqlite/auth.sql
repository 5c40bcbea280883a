BEGIN TRANSACTION;
CREATE TABLE accounts (
	account_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	preferred_class TEXT NOT NULL, 
	requests_per_minute BIGINT, 
	tokens_per_minute BIGINT, 
	concurrent_requests BIGINT, 
	suspended_at_us BIGINT, 
	search BOOLEAN DEFAULT 1 NOT NULL, 
	memory BOOLEAN DEFAULT 1 NOT NULL, 
	attachments BOOLEAN DEFAULT 1 NOT NULL, allowed_classes TEXT, 
	PRIMARY KEY (account_id)
);
INSERT INTO "accounts" VALUES('acct_xuxv6r6c4in3ghxb','Ada',1794988141359791,'forte',600,NULL,NULL,NULL,1,1,1,NULL);
INSERT INTO "accounts" VALUES('acct_gkwfvpdq3dyv2ugc','Bob',1794988151900589,'forte',NULL,NULL,NULL,1794988155967231,1,1,1,NULL);
CREATE TABLE api_keys (
	key_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	scopes TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	pepper_version INTEGER NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	expires_at_us BIGINT, 
	revoked_at_us BIGINT, 
	requests_per_minute BIGINT, 
	tokens_per_minute BIGINT, 
	concurrent_requests BIGINT, 
	last_used_hour_us BIGINT, created_by TEXT DEFAULT '' NOT NULL, replaces_key_id TEXT, form_id TEXT, playground_user_id TEXT, allowed_classes TEXT, expiry_noted_days INTEGER, 
	PRIMARY KEY (key_id), 
	FOREIGN KEY(account_id) REFERENCES accounts (account_id)
);
INSERT INTO "api_keys" VALUES('key_d8gOBW5fdefoIq1r','acct_xuxv6r6c4in3ghxb','used','',X'392981168C26AA240BC2B051DE5FCAECE1A147564EA59A3310912D76C4D7B6D9',1,1794988167229551,NULL,NULL,NULL,NULL,20,1794985200000000,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "api_keys" VALUES('key_kWsE439MTdNjyW12','acct_xuxv6r6c4in3ghxb','revoked','',X'087191C3AC1933714D51150720ACB95C843D66C78CFFA2420D3612BB1AC851AD',1,1794988171981730,NULL,1794988178436790,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "api_keys" VALUES('key_ia6uvwmWQP4TvL6j','acct_gkwfvpdq3dyv2ugc','','',X'1AC7D8712520C31793EE97A349F78AC69365C3C53F139EC4FB049E45CFB9E7BF',1,1794988190695720,NULL,NULL,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE audit_events (
	event_no BIGINT NOT NULL, 
	occurred_at_us BIGINT NOT NULL, 
	action TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	object_id TEXT NOT NULL, 
	session_id TEXT NOT NULL, 
	network TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	pepper_version INTEGER NOT NULL, 
	previous_code BLOB NOT NULL, 
	code BLOB NOT NULL, 
	PRIMARY KEY (event_no)
);
INSERT INTO "audit_events" VALUES(1,1794988141362112,'account.created','','acct_xuxv6r6c4in3ghxb','','','','done',1,X'',X'C6EB8F1FFB990C462C0BEF29A64E48E4169C589B74A472BB329F70D55E1A37A6');
INSERT INTO "audit_events" VALUES(2,1794988145836920,'account.updated','','acct_xuxv6r6c4in3ghxb','acct_xuxv6r6c4in3ghxb','','','done',1,X'C6EB8F1FFB990C462C0BEF29A64E48E4169C589B74A472BB329F70D55E1A37A6',X'62AC1014997210194E3DD6E25FE37198069BE08BC5419BD6886D11373FA3EC92');
INSERT INTO "audit_events" VALUES(3,1794988151964636,'account.created','','acct_gkwfvpdq3dyv2ugc','','','','done',1,X'62AC1014997210194E3DD6E25FE37198069BE08BC5419BD6886D11373FA3EC92',X'BE35140D554661BA2E0227C6AC74D1734482E1A09D00F2923F3E7CDA14CB8230');
INSERT INTO "audit_events" VALUES(4,1794988155972914,'account.suspended','','acct_gkwfvpdq3dyv2ugc','acct_gkwfvpdq3dyv2ugc','','','done',1,X'BE35140D554661BA2E0227C6AC74D1734482E1A09D00F2923F3E7CDA14CB8230',X'93AB9CE970276D6764B69B8D05D5801772264BC44FC43402365FF23AF9BFC35E');
INSERT INTO "audit_events" VALUES(5,1794988167239402,'key.created','','acct_xuxv6r6c4in3ghxb','key_d8gOBW5fdefoIq1r','','','done',1,X'93AB9CE970276D6764B69B8D05D5801772264BC44FC43402365FF23AF9BFC35E',X'441906F2538998D0E25256AD498452DA42AC37DEB3A4E7473C6DF8E279BA1E00');
INSERT INTO "audit_events" VALUES(6,1794988171984290,'key.created','','acct_xuxv6r6c4in3ghxb','key_kWsE439MTdNjyW12','','','done',1,X'441906F2538998D0E25256AD498452DA42AC37DEB3A4E7473C6DF8E279BA1E00',X'100152337323F412596628BC3F319D2495119E8471ECAC9653D8BE5807D6593D');
INSERT INTO "audit_events" VALUES(7,1794988178481445,'key.revoked','','acct_xuxv6r6c4in3ghxb','key_kWsE439MTdNjyW12','','','done',1,X'100152337323F412596628BC3F319D2495119E8471ECAC9653D8BE5807D6593D',X'A4E0A3FDED3CE0A534CAEFA10C6A6C82390A123ECBBFEFE3840E0145561DEAE3');
INSERT INTO "audit_events" VALUES(8,1794988185165342,'key.updated','','acct_xuxv6r6c4in3ghxb','key_d8gOBW5fdefoIq1r','','','done',1,X'A4E0A3FDED3CE0A534CAEFA10C6A6C82390A123ECBBFEFE3840E0145561DEAE3',X'3F5210A074889D7CDA2357EBED73CA4F55917BEB2F5AFDBD42D0F47012F28220');
INSERT INTO "audit_events" VALUES(9,1794988190740647,'key.created','','acct_gkwfvpdq3dyv2ugc','key_ia6uvwmWQP4TvL6j','','','done',1,X'3F5210A074889D7CDA2357EBED73CA4F55917BEB2F5AFDBD42D0F47012F28220',X'D4F2B442B8395AB900153B4AE29E76B67610CB4EA9A0CE4A61CA73CAE1956599');
CREATE TABLE audit_head (
	row_no INTEGER NOT NULL, 
	event_no BIGINT NOT NULL, 
	code BLOB NOT NULL, 
	pruned_no BIGINT DEFAULT '0' NOT NULL, 
	pruned_pepper_version INTEGER DEFAULT '0' NOT NULL, 
	pruned_code BLOB, 
	PRIMARY KEY (row_no), 
	CONSTRAINT audit_head_has_one_row CHECK (row_no = 1)
);
INSERT INTO "audit_head" VALUES(1,9,X'D4F2B442B8395AB900153B4AE29E76B67610CB4EA9A0CE4A61CA73CAE1956599',0,0,NULL);
CREATE TABLE challenges (
	challenge_id TEXT NOT NULL, 
	user_id TEXT, 
	challenge BLOB NOT NULL, 
	origin TEXT NOT NULL, 
	expires_at_us BIGINT NOT NULL, 
	kind TEXT DEFAULT 'passkey' NOT NULL, 
	PRIMARY KEY (challenge_id)
);
CREATE TABLE epoch (
	row_no INTEGER NOT NULL, 
	value BIGINT NOT NULL, 
	forgotten BIGINT NOT NULL, 
	peppers TEXT DEFAULT '' NOT NULL, maintenance_message TEXT, maintenance_retry_after_s INTEGER, maintenance_started_at_us BIGINT, 
	PRIMARY KEY (row_no), 
	CONSTRAINT epoch_has_one_row CHECK (row_no = 1)
);
INSERT INTO "epoch" VALUES(1,6,2,'1:ba2dddafe92f1eca',NULL,NULL,NULL);
CREATE TABLE invitations (
	invitation_id TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	account_id TEXT NOT NULL, 
	email TEXT NOT NULL, 
	role INTEGER NOT NULL, 
	invited_by TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	expires_at_us BIGINT NOT NULL, 
	PRIMARY KEY (invitation_id), 
	FOREIGN KEY(account_id) REFERENCES accounts (account_id)
);
CREATE TABLE key_changes (
	epoch BIGINT NOT NULL, 
	key_id TEXT NOT NULL, 
	PRIMARY KEY (epoch, key_id)
);
INSERT INTO "key_changes" VALUES(5,'key_kWsE439MTdNjyW12');
INSERT INTO "key_changes" VALUES(6,'key_d8gOBW5fdefoIq1r');
CREATE TABLE key_networks (
	key_id TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	pepper_version INTEGER NOT NULL, 
	first_used_at_us BIGINT NOT NULL, 
	last_used_at_us BIGINT NOT NULL, 
	PRIMARY KEY (key_id, digest)
);
CREATE TABLE memberships (
	account_id TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	role INTEGER NOT NULL, 
	joined_at_us BIGINT NOT NULL, 
	is_mailed BOOLEAN DEFAULT 1 NOT NULL, 
	PRIMARY KEY (account_id, user_id), 
	FOREIGN KEY(account_id) REFERENCES accounts (account_id), 
	FOREIGN KEY(user_id) REFERENCES users (user_id)
);
CREATE TABLE muted_notices (
	account_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	PRIMARY KEY (account_id, kind), 
	FOREIGN KEY(account_id) REFERENCES accounts (account_id)
);
CREATE TABLE notice_deliveries (
	delivery_id TEXT NOT NULL, 
	notice_id TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	recipient_id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	failure TEXT NOT NULL, 
	attempted_at_us BIGINT, 
	next_attempt_at_us BIGINT NOT NULL, 
	PRIMARY KEY (delivery_id), 
	FOREIGN KEY(notice_id) REFERENCES notices (notice_id)
);
CREATE TABLE notices (
	notice_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	body TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	PRIMARY KEY (notice_id), 
	FOREIGN KEY(account_id) REFERENCES accounts (account_id)
);
CREATE TABLE oidc_identities (
	identity_id TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	issuer TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	last_used_hour_us BIGINT, 
	PRIMARY KEY (identity_id), 
	FOREIGN KEY(user_id) REFERENCES users (user_id)
);
CREATE TABLE passkeys (
	passkey_id TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	credential_id BLOB NOT NULL, 
	credential BLOB NOT NULL, 
	sign_count BIGINT NOT NULL, 
	rp_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	is_backed_up BOOLEAN NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	last_used_hour_us BIGINT, 
	PRIMARY KEY (passkey_id), 
	FOREIGN KEY(user_id) REFERENCES users (user_id)
);
CREATE TABLE passwords (
	user_id TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	set_at_us BIGINT NOT NULL, 
	PRIMARY KEY (user_id), 
	FOREIGN KEY(user_id) REFERENCES users (user_id)
);
CREATE TABLE playground_tokens (
	token_id TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	pepper_version INTEGER NOT NULL, 
	key_id TEXT NOT NULL, 
	session_id TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	expires_at_us BIGINT NOT NULL, 
	PRIMARY KEY (token_id), 
	FOREIGN KEY(key_id) REFERENCES api_keys (key_id), 
	FOREIGN KEY(session_id) REFERENCES sessions (session_id)
);
CREATE TABLE recorded_changes (
	change_id TEXT NOT NULL, 
	recorded_at_us BIGINT NOT NULL, 
	PRIMARY KEY (change_id)
);
CREATE TABLE recovery_codes (
	digest BLOB NOT NULL, 
	user_id TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	PRIMARY KEY (digest), 
	FOREIGN KEY(user_id) REFERENCES users (user_id)
);
CREATE TABLE schema_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY, oldest_num TEXT NOT NULL DEFAULT '', release TEXT NOT NULL DEFAULT '');
INSERT INTO "schema_version" VALUES('0013','0013','0.2.0');
CREATE TABLE sessions (
	session_id TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	previous_digest BLOB, 
	previous_until_us BIGINT, 
	replace_due BOOLEAN NOT NULL, 
	user_id TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	authenticated_at_us BIGINT NOT NULL, 
	last_seen_us BIGINT NOT NULL, 
	network TEXT NOT NULL, 
	browser TEXT NOT NULL, 
	method TEXT NOT NULL, 
	PRIMARY KEY (session_id), 
	FOREIGN KEY(user_id) REFERENCES users (user_id)
);
CREATE TABLE sign_in_links (
	user_id TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	expires_at_us BIGINT NOT NULL, 
	PRIMARY KEY (user_id), 
	FOREIGN KEY(user_id) REFERENCES users (user_id)
);
CREATE TABLE sign_in_rate_limits (
	name TEXT NOT NULL, 
	full_at_ns BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE totp (
	user_id TEXT NOT NULL, 
	secret BLOB NOT NULL, 
	last_step BIGINT NOT NULL, 
	set_at_us BIGINT NOT NULL, 
	PRIMARY KEY (user_id), 
	FOREIGN KEY(user_id) REFERENCES users (user_id)
);
CREATE TABLE users (
	user_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	email TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	is_operator BOOLEAN NOT NULL, 
	disabled_at_us BIGINT, 
	last_seen_hour_us BIGINT, 
	PRIMARY KEY (user_id)
);
CREATE TABLE webhooks (
	webhook_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	url TEXT NOT NULL, 
	secret TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	PRIMARY KEY (webhook_id), 
	FOREIGN KEY(account_id) REFERENCES accounts (account_id)
);
CREATE INDEX accounts_by_age ON accounts (created_at_us, account_id);
CREATE INDEX api_keys_by_age ON api_keys (account_id, created_at_us, key_id);
CREATE UNIQUE INDEX api_keys_by_form ON api_keys (account_id, form_id);
CREATE UNIQUE INDEX api_keys_by_playground ON api_keys (account_id, playground_user_id);
CREATE INDEX api_keys_by_expiry ON api_keys (expires_at_us);
CREATE INDEX api_keys_by_replaced ON api_keys (replaces_key_id);
CREATE INDEX users_by_email ON users (email);
CREATE INDEX users_by_age ON users (created_at_us, user_id);
CREATE INDEX memberships_by_user ON memberships (user_id, joined_at_us);
CREATE UNIQUE INDEX invitations_by_digest ON invitations (digest);
CREATE INDEX invitations_by_account ON invitations (account_id, created_at_us);
CREATE INDEX invitations_by_email ON invitations (email, created_at_us);
CREATE INDEX passkeys_by_user ON passkeys (user_id, created_at_us);
CREATE UNIQUE INDEX passkeys_by_credential ON passkeys (credential_id);
CREATE INDEX recovery_codes_by_user ON recovery_codes (user_id);
CREATE INDEX oidc_identities_by_user ON oidc_identities (user_id, created_at_us);
CREATE UNIQUE INDEX oidc_identities_by_subject ON oidc_identities (issuer, subject);
CREATE UNIQUE INDEX sign_in_links_by_digest ON sign_in_links (digest);
CREATE INDEX sessions_by_age ON sessions (created_at_us);
CREATE INDEX sessions_by_user ON sessions (user_id, created_at_us);
CREATE INDEX sessions_by_previous_digest ON sessions (previous_digest);
CREATE UNIQUE INDEX sessions_by_digest ON sessions (digest);
CREATE INDEX challenges_by_expiry ON challenges (expires_at_us);
CREATE INDEX sign_in_rate_limits_by_time ON sign_in_rate_limits (full_at_ns);
CREATE INDEX playground_tokens_by_key ON playground_tokens (key_id, expires_at_us);
CREATE INDEX playground_tokens_by_session ON playground_tokens (session_id, created_at_us);
CREATE INDEX audit_events_by_time ON audit_events (occurred_at_us);
CREATE INDEX audit_events_by_user ON audit_events (user_id, event_no);
CREATE INDEX audit_events_by_account ON audit_events (account_id, event_no);
CREATE INDEX recorded_changes_by_time ON recorded_changes (recorded_at_us);
CREATE INDEX webhooks_by_account ON webhooks (account_id, created_at_us);
CREATE INDEX notices_by_age ON notices (created_at_us);
CREATE INDEX notices_by_account ON notices (account_id, created_at_us);
CREATE INDEX notice_deliveries_by_recipient ON notice_deliveries (state, recipient_id, next_attempt_at_us);
CREATE INDEX notice_deliveries_by_notice ON notice_deliveries (notice_id, delivery_id);
CREATE INDEX key_networks_by_use ON key_networks (last_used_at_us);
CREATE VIEW alembic_version AS SELECT json_extract('{}', 'this database was migrated by a newer Legato: start that, or restore a backup (docs/upgrade.md)') AS version_num;
COMMIT;
