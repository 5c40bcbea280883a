BEGIN TRANSACTION;
CREATE TABLE accounts (
	account_id TEXT NOT NULL, 
	balance_nanos BIGINT NOT NULL, 
	held_nanos BIGINT NOT NULL, 
	PRIMARY KEY (account_id), 
	CONSTRAINT account_is_covered CHECK (0 <= held_nanos AND held_nanos <= balance_nanos)
) WITHOUT ROWID;
INSERT INTO "accounts" VALUES('acct_2yecy5tskq25kvjm',4499992290,874060);
INSERT INTO "accounts" VALUES('acct_7ktuhzbvi55natsr',1000000000,0);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE claims (
	account_id TEXT NOT NULL, 
	key_digest BLOB NOT NULL, 
	body_digest BLOB NOT NULL, 
	request_id TEXT NOT NULL, 
	claimed_at_us BIGINT NOT NULL, 
	PRIMARY KEY (account_id, key_digest)
);
CREATE TABLE holds (
	request_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	class_id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	amount_nanos BIGINT NOT NULL, 
	price_version BIGINT NOT NULL, 
	deadline_at_us BIGINT, 
	prompt_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	charged_nanos BIGINT NOT NULL, 
	loss_nanos BIGINT NOT NULL, 
	loss_bound_nanos BIGINT NOT NULL, 
	basis TEXT, 
	"end" TEXT, 
	counted_hour_us BIGINT, 
	reserved_at_us BIGINT, 
	resolved_at_us BIGINT, 
	PRIMARY KEY (request_id), 
	CONSTRAINT hold_state_is_known CHECK (state = 'held' OR state = 'settled' OR state = 'void' OR state = 'swept'), 
	CONSTRAINT hold_is_not_negative CHECK (amount_nanos >= 0 AND charged_nanos >= 0 AND loss_nanos >= 0 AND loss_bound_nanos >= 0), 
	CONSTRAINT hold_has_its_price CHECK (state = 'void' OR price_version > 0)
) WITHOUT ROWID;
INSERT INTO "holds" VALUES('01a1ebed373579a89c02e25a2ef1aed2','acct_2yecy5tskq25kvjm','key_3mS8NkLfLEi4SmaM','mezzo','settled',27539020,1,1794963214364000,11,0,7,2570,0,0,'provider','complete',1794956400000000,1794959554364000,1794959554384000);
INSERT INTO "holds" VALUES('01a1ebed374e703d95d4ce6d80275321','acct_2yecy5tskq25kvjm','key_3mS8NkLfLEi4SmaM','mezzo','settled',27539020,1,1794963214384000,11,0,7,2570,0,0,'provider','complete',1794956400000000,1794959554384000,1794959554394000);
INSERT INTO "holds" VALUES('01a1ebed375870b58ad6103b40fdcbce','acct_2yecy5tskq25kvjm','key_3mS8NkLfLEi4SmaM','mezzo','settled',27539020,1,1794963214394000,11,0,7,2570,0,0,'provider','complete',1794956400000000,1794959554394000,1794959554414000);
INSERT INTO "holds" VALUES('01a1ebed3adf75c0921d48920ddd0c5e','acct_2yecy5tskq25kvjm','key_3mS8NkLfLEi4SmaM','mezzo','held',874060,1,1794963215297000,94,0,4,0,0,0,'checkpoint',NULL,NULL,1794959555297000,NULL);
CREATE TABLE ledger (
	entry_id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	customer_nanos BIGINT NOT NULL, 
	recorded_at_us BIGINT NOT NULL, 
	revenue_nanos BIGINT NOT NULL, 
	loss_nanos BIGINT NOT NULL, 
	external_nanos BIGINT NOT NULL, 
	key_id TEXT NOT NULL, 
	class_id TEXT NOT NULL, 
	price_version BIGINT NOT NULL, 
	hour_us BIGINT NOT NULL, 
	requests BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	basis TEXT, 
	"end" TEXT, 
	reason TEXT, 
	PRIMARY KEY (entry_id), 
	CONSTRAINT ledger_legs_sum_to_zero CHECK (customer_nanos + revenue_nanos + loss_nanos + external_nanos = 0), 
	CONSTRAINT ledger_kind_is_known CHECK (kind = 'charge' OR kind = 'late_charge' OR kind = 'loss' OR kind = 'grant' OR kind = 'adjustment'), 
	CONSTRAINT ledger_charge_is_whole CHECK ((kind <> 'charge' AND kind <> 'late_charge') OR (key_id <> '' AND class_id <> '' AND price_version > 0 AND hour_us > 0 AND customer_nanos <= 0))
);
INSERT INTO "ledger" VALUES(1,'grant','grant_5ab1d12d76d89a7478193f7a0c0ce257','acct_2yecy5tskq25kvjm',5000000000,1794959537826000,0,0,-5000000000,'','',0,0,0,0,0,0,NULL,NULL,NULL);
INSERT INTO "ledger" VALUES(2,'grant','grant_d14f09dc24f6957492d011a4e1bc2f9c','acct_7ktuhzbvi55natsr',1000000000,1794959540663000,0,0,-1000000000,'','',0,0,0,0,0,0,NULL,NULL,NULL);
INSERT INTO "ledger" VALUES(3,'adjustment','adjustment_cbed5fb0b3f675e1d51074d71a3dd16c','acct_2yecy5tskq25kvjm',-500000000,1794959543537000,0,0,500000000,'','',0,0,0,0,0,0,NULL,NULL,'a test of adjustments');
INSERT INTO "ledger" VALUES(4,'charge','01a1ebed373579a89c02e25a2ef1aed2','acct_2yecy5tskq25kvjm',-2570,1794959554384000,2570,0,0,'key_3mS8NkLfLEi4SmaM','mezzo',1,1794956400000000,1,11,0,7,'provider','complete',NULL);
INSERT INTO "ledger" VALUES(5,'charge','01a1ebed374e703d95d4ce6d80275321','acct_2yecy5tskq25kvjm',-2570,1794959554394000,2570,0,0,'key_3mS8NkLfLEi4SmaM','mezzo',1,1794956400000000,1,11,0,7,'provider','complete',NULL);
INSERT INTO "ledger" VALUES(6,'charge','01a1ebed375870b58ad6103b40fdcbce','acct_2yecy5tskq25kvjm',-2570,1794959554414000,2570,0,0,'key_3mS8NkLfLEi4SmaM','mezzo',1,1794956400000000,1,11,0,7,'provider','complete',NULL);
CREATE TABLE price_versions (
	version BIGINT NOT NULL, 
	effective_from_us BIGINT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "price_versions" VALUES(1,1794959533226000);
CREATE TABLE prices (
	version BIGINT NOT NULL, 
	class_id TEXT NOT NULL, 
	input_nanos_per_million BIGINT NOT NULL, 
	cached_input_nanos_per_million BIGINT NOT NULL, 
	output_nanos_per_million BIGINT NOT NULL, 
	PRIMARY KEY (version, class_id), 
	CONSTRAINT price_is_not_negative CHECK (input_nanos_per_million >= 0 AND cached_input_nanos_per_million >= 0 AND output_nanos_per_million >= 0), 
	FOREIGN KEY(version) REFERENCES price_versions (version)
);
INSERT INTO "prices" VALUES(1,'mezzo',100000000,20000000,210000000);
INSERT INTO "prices" VALUES(1,'forte',1070000000,1070000000,3450000000);
INSERT INTO "prices" VALUES(1,'fortissimo',3450000000,3450000000,17250000000);
CREATE TABLE usage_hours (
	account_id TEXT NOT NULL, 
	hour_us BIGINT NOT NULL, 
	key_id TEXT NOT NULL, 
	class_id TEXT NOT NULL, 
	requests BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cost_nanos BIGINT NOT NULL, 
	loss_nanos BIGINT NOT NULL, 
	PRIMARY KEY (account_id, hour_us, key_id, class_id)
) WITHOUT ROWID;
INSERT INTO "usage_hours" VALUES('acct_2yecy5tskq25kvjm',1794956400000000,'key_3mS8NkLfLEi4SmaM','mezzo',3,33,0,21,7710,0);
CREATE TRIGGER price_versions_refuses_update BEFORE UPDATE ON price_versions BEGIN SELECT RAISE(ABORT, 'price_versions is append-only'); END;
CREATE TRIGGER price_versions_refuses_delete BEFORE DELETE ON price_versions BEGIN SELECT RAISE(ABORT, 'price_versions is append-only'); END;
CREATE TRIGGER prices_refuses_update BEFORE UPDATE ON prices BEGIN SELECT RAISE(ABORT, 'prices is append-only'); END;
CREATE TRIGGER prices_refuses_delete BEFORE DELETE ON prices BEGIN SELECT RAISE(ABORT, 'prices is append-only'); END;
CREATE INDEX claims_by_age ON claims (claimed_at_us);
CREATE INDEX live_holds ON holds (key_id, account_id, deadline_at_us) WHERE state = 'held';
CREATE UNIQUE INDEX ledger_books_once ON ledger (kind, request_id);
CREATE TRIGGER ledger_refuses_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END;
CREATE TRIGGER ledger_refuses_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END;
COMMIT;
