BEGIN TRANSACTION;
CREATE TABLE account_changes (
	change_id TEXT NOT NULL, 
	action TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	session_id TEXT NOT NULL, 
	recorded_at_us BIGINT NOT NULL, 
	PRIMARY KEY (change_id)
);
CREATE TABLE account_closings (
	month_us BIGINT NOT NULL, 
	account_id TEXT NOT NULL, 
	entries BIGINT NOT NULL, 
	granted_nanos BIGINT NOT NULL, 
	adjusted_nanos BIGINT NOT NULL, 
	charged_nanos BIGINT NOT NULL, 
	loss_nanos BIGINT NOT NULL, 
	requests BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	balance_nanos BIGINT NOT NULL, 
	total_entries BIGINT NOT NULL, 
	total_credited_nanos BIGINT NOT NULL, 
	total_charged_nanos BIGINT NOT NULL, 
	PRIMARY KEY (month_us, account_id)
);
CREATE TABLE account_hours (
	account_id TEXT NOT NULL, 
	hour_us BIGINT NOT NULL, 
	class_id TEXT NOT NULL, 
	requests BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cost_nanos BIGINT NOT NULL, 
	loss_nanos BIGINT NOT NULL, 
	PRIMARY KEY (account_id, hour_us, class_id)
)
 WITHOUT ROWID

;
INSERT INTO "account_hours" VALUES('acct_xuxv6r6c4in3ghxb',1794985200000000,'mezzo',3,33,0,21,7710,0);
CREATE TABLE accounts (
	account_id TEXT NOT NULL, 
	balance_nanos BIGINT NOT NULL, 
	held_nanos BIGINT NOT NULL, has_spend_limits BOOLEAN DEFAULT 0 NOT NULL, low_balance_nanos BIGINT, owed_nanos BIGINT NOT NULL DEFAULT 0 CONSTRAINT owed_is_not_negative CHECK (owed_nanos >= 0), 
	PRIMARY KEY (account_id), 
	CONSTRAINT account_is_covered CHECK (0 <= held_nanos AND held_nanos <= balance_nanos)
)
 WITHOUT ROWID

;
INSERT INTO "accounts" VALUES('acct_gkwfvpdq3dyv2ugc',1000000000,0,0,NULL,0);
INSERT INTO "accounts" VALUES('acct_xuxv6r6c4in3ghxb',4499992290,874060,0,NULL,0);
CREATE TABLE claims (
	account_id TEXT NOT NULL, 
	key_digest BLOB NOT NULL, 
	body_digest BLOB NOT NULL, 
	request_id TEXT NOT NULL, 
	claimed_at_us BIGINT NOT NULL, 
	PRIMARY KEY (account_id, key_digest)
);
CREATE TABLE closings (
	month_us BIGINT NOT NULL, 
	ends_us BIGINT NOT NULL, 
	entries BIGINT NOT NULL, 
	customer_nanos BIGINT NOT NULL, 
	revenue_nanos BIGINT NOT NULL, 
	loss_nanos BIGINT NOT NULL, 
	external_nanos BIGINT NOT NULL, 
	accounts BIGINT NOT NULL, 
	balance_nanos BIGINT NOT NULL, 
	closed_at_us BIGINT NOT NULL, 
	entries_hash TEXT NOT NULL, 
	accounts_hash TEXT NOT NULL, 
	previous_hash TEXT NOT NULL, 
	closing_hash TEXT NOT NULL, 
	PRIMARY KEY (month_us)
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
)
 WITHOUT ROWID

;
INSERT INTO "holds" VALUES('01a1eda257417c4eba00006b886b5d41','acct_xuxv6r6c4in3ghxb','key_d8gOBW5fdefoIq1r','mezzo','settled',27539020,1,1794991861820000,11,0,7,2570,0,0,'provider','complete',1794985200000000,1794988201820000,1794988201869000);
INSERT INTO "holds" VALUES('01a1eda2578c7d4ca545f074c2035b2b','acct_xuxv6r6c4in3ghxb','key_d8gOBW5fdefoIq1r','mezzo','settled',27539020,1,1794991861869000,11,0,7,2570,0,0,'provider','complete',1794985200000000,1794988201869000,1794988201886000);
INSERT INTO "holds" VALUES('01a1eda2579d713daffac5b04477f7f2','acct_xuxv6r6c4in3ghxb','key_d8gOBW5fdefoIq1r','mezzo','settled',27539020,1,1794991861886000,11,0,7,2570,0,0,'provider','complete',1794985200000000,1794988201886000,1794988201951000);
INSERT INTO "holds" VALUES('01a1eda263467fbb905081d3e5174a69','acct_xuxv6r6c4in3ghxb','key_d8gOBW5fdefoIq1r','mezzo','held',874060,1,1794991864875000,94,0,4,0,0,0,'checkpoint',NULL,NULL,1794988204875000,NULL);
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
INSERT INTO "ledger" VALUES(1,'grant','grant_0da28d7718a89f0a0954bf53c7a7b1a6','acct_xuxv6r6c4in3ghxb',5000000000,1794988141377000,0,0,-5000000000,'','',0,0,0,0,0,0,NULL,NULL,NULL);
INSERT INTO "ledger" VALUES(2,'grant','grant_82413a0808cdf75f70e1c5487ff7e55e','acct_gkwfvpdq3dyv2ugc',1000000000,1794988152064000,0,0,-1000000000,'','',0,0,0,0,0,0,NULL,NULL,NULL);
INSERT INTO "ledger" VALUES(3,'adjustment','adjustment_159ffc35e837b567b01cf226d6a049ce','acct_xuxv6r6c4in3ghxb',-500000000,1794988161698000,0,0,500000000,'','',0,0,0,0,0,0,NULL,NULL,'a test of adjustments');
INSERT INTO "ledger" VALUES(4,'charge','01a1eda257417c4eba00006b886b5d41','acct_xuxv6r6c4in3ghxb',-2570,1794988201869000,2570,0,0,'key_d8gOBW5fdefoIq1r','mezzo',1,1794985200000000,1,11,0,7,'provider','complete',NULL);
INSERT INTO "ledger" VALUES(5,'charge','01a1eda2578c7d4ca545f074c2035b2b','acct_xuxv6r6c4in3ghxb',-2570,1794988201886000,2570,0,0,'key_d8gOBW5fdefoIq1r','mezzo',1,1794985200000000,1,11,0,7,'provider','complete',NULL);
INSERT INTO "ledger" VALUES(6,'charge','01a1eda2579d713daffac5b04477f7f2','acct_xuxv6r6c4in3ghxb',-2570,1794988201951000,2570,0,0,'key_d8gOBW5fdefoIq1r','mezzo',1,1794985200000000,1,11,0,7,'provider','complete',NULL);
CREATE TABLE notices (
	notice_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	period TEXT NOT NULL, 
	amount_nanos BIGINT NOT NULL, 
	threshold_nanos BIGINT NOT NULL, 
	recorded_at_us BIGINT NOT NULL, 
	acknowledged_at_us BIGINT, 
	PRIMARY KEY (notice_id)
);
CREATE TABLE owed_changes (
	request_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	owed_nanos BIGINT NOT NULL, 
	recorded_at_us BIGINT NOT NULL, 
	PRIMARY KEY (request_id)
);
CREATE TABLE price_versions (
	version BIGINT NOT NULL, 
	effective_from_us BIGINT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "price_versions" VALUES(1,1794988125788000);
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
CREATE TABLE pruned_credits (
	kind TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	customer_nanos BIGINT NOT NULL, 
	recorded_at_us BIGINT NOT NULL, 
	revenue_nanos BIGINT NOT NULL, 
	loss_nanos BIGINT NOT NULL, 
	external_nanos BIGINT NOT NULL, 
	PRIMARY KEY (kind, request_id)
);
CREATE TABLE retention (
	retention_id INTEGER NOT NULL, 
	lease_holder TEXT NOT NULL, 
	lease_until_us BIGINT NOT NULL, 
	ledger_pruned_before_us BIGINT NOT NULL, 
	usage_marked_before_us BIGINT NOT NULL, 
	usage_summed_before_us BIGINT NOT NULL, 
	PRIMARY KEY (retention_id), 
	CONSTRAINT retention_is_one_row CHECK (retention_id = 1)
);
INSERT INTO "retention" VALUES(1,'9f8f57ca26e24561a72c23fcce439f07',1794988757383000,0,0,0);
CREATE TABLE schema_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY, oldest_num TEXT NOT NULL DEFAULT '', release TEXT NOT NULL DEFAULT '');
INSERT INTO "schema_version" VALUES('0015','0015','0.2.0');
CREATE TABLE spends (
	spend_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	day_limit_nanos BIGINT, 
	month_limit_nanos BIGINT, 
	total_limit_nanos BIGINT, 
	day_us BIGINT NOT NULL, 
	month_us BIGINT NOT NULL, 
	day_spent_nanos BIGINT NOT NULL, 
	month_spent_nanos BIGINT NOT NULL, 
	total_spent_nanos BIGINT NOT NULL, 
	held_nanos BIGINT NOT NULL, 
	shared_spend_id TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (spend_id), 
	CONSTRAINT spend_is_not_negative CHECK (held_nanos >= 0 AND total_spent_nanos >= 0)
);
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
)
 WITHOUT ROWID

;
INSERT INTO "usage_hours" VALUES('acct_xuxv6r6c4in3ghxb',1794985200000000,'key_d8gOBW5fdefoIq1r','mezzo',3,33,0,21,7710,0);
CREATE UNIQUE INDEX ledger_books_once ON ledger (kind, request_id);
CREATE INDEX claims_by_age ON claims (claimed_at_us);
CREATE INDEX live_holds ON holds (key_id, account_id, deadline_at_us) WHERE state = 'held';
CREATE TRIGGER ledger_refuses_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END;
CREATE TRIGGER price_versions_refuses_update BEFORE UPDATE ON price_versions BEGIN SELECT RAISE(ABORT, 'price_versions is append-only'); END;
CREATE TRIGGER price_versions_refuses_delete BEFORE DELETE ON price_versions BEGIN SELECT RAISE(ABORT, 'price_versions is append-only'); END;
CREATE TRIGGER prices_refuses_update BEFORE UPDATE ON prices BEGIN SELECT RAISE(ABORT, 'prices is append-only'); END;
CREATE TRIGGER prices_refuses_delete BEFORE DELETE ON prices BEGIN SELECT RAISE(ABORT, 'prices is append-only'); END;
CREATE INDEX ledger_credits_by_account ON ledger (account_id, recorded_at_us, entry_id) WHERE kind <> 'charge';
CREATE INDEX ledger_by_account ON ledger (account_id, entry_id);
CREATE INDEX owed_changes_by_account ON owed_changes (account_id);
CREATE UNIQUE INDEX spends_by_account ON spends (account_id, key_id);
CREATE INDEX spends_by_shared ON spends (shared_spend_id) WHERE shared_spend_id <> '';
CREATE INDEX notices_by_acknowledgement ON notices (acknowledged_at_us, recorded_at_us);
CREATE TRIGGER usage_hours_count_insert AFTER INSERT ON usage_hours BEGIN INSERT INTO account_hours (account_id, hour_us, class_id, requests, prompt_tokens, cached_tokens, completion_tokens, cost_nanos, loss_nanos) VALUES (NEW.account_id, NEW.hour_us, NEW.class_id, NEW.requests, NEW.prompt_tokens, NEW.cached_tokens, NEW.completion_tokens, NEW.cost_nanos, NEW.loss_nanos) ON CONFLICT (account_id, hour_us, class_id) DO UPDATE SET requests = account_hours.requests + excluded.requests, prompt_tokens = account_hours.prompt_tokens + excluded.prompt_tokens, cached_tokens = account_hours.cached_tokens + excluded.cached_tokens, completion_tokens = account_hours.completion_tokens + excluded.completion_tokens, cost_nanos = account_hours.cost_nanos + excluded.cost_nanos, loss_nanos = account_hours.loss_nanos + excluded.loss_nanos; END;
CREATE TRIGGER usage_hours_count_update AFTER UPDATE ON usage_hours BEGIN INSERT INTO account_hours (account_id, hour_us, class_id, requests, prompt_tokens, cached_tokens, completion_tokens, cost_nanos, loss_nanos) VALUES (NEW.account_id, NEW.hour_us, NEW.class_id, NEW.requests - OLD.requests, NEW.prompt_tokens - OLD.prompt_tokens, NEW.cached_tokens - OLD.cached_tokens, NEW.completion_tokens - OLD.completion_tokens, NEW.cost_nanos - OLD.cost_nanos, NEW.loss_nanos - OLD.loss_nanos) ON CONFLICT (account_id, hour_us, class_id) DO UPDATE SET requests = account_hours.requests + excluded.requests, prompt_tokens = account_hours.prompt_tokens + excluded.prompt_tokens, cached_tokens = account_hours.cached_tokens + excluded.cached_tokens, completion_tokens = account_hours.completion_tokens + excluded.completion_tokens, cost_nanos = account_hours.cost_nanos + excluded.cost_nanos, loss_nanos = account_hours.loss_nanos + excluded.loss_nanos; END;
CREATE TRIGGER usage_hours_count_delete AFTER DELETE ON usage_hours BEGIN INSERT INTO account_hours (account_id, hour_us, class_id, requests, prompt_tokens, cached_tokens, completion_tokens, cost_nanos, loss_nanos) VALUES (OLD.account_id, OLD.hour_us, OLD.class_id, -OLD.requests, -OLD.prompt_tokens, -OLD.cached_tokens, -OLD.completion_tokens, -OLD.cost_nanos, -OLD.loss_nanos) ON CONFLICT (account_id, hour_us, class_id) DO UPDATE SET requests = account_hours.requests + excluded.requests, prompt_tokens = account_hours.prompt_tokens + excluded.prompt_tokens, cached_tokens = account_hours.cached_tokens + excluded.cached_tokens, completion_tokens = account_hours.completion_tokens + excluded.completion_tokens, cost_nanos = account_hours.cost_nanos + excluded.cost_nanos, loss_nanos = account_hours.loss_nanos + excluded.loss_nanos; END;
CREATE TRIGGER closings_refuses_update BEFORE UPDATE ON closings  BEGIN SELECT RAISE(ABORT, 'closings is append-only'); END;
CREATE TRIGGER closings_refuses_delete BEFORE DELETE ON closings  BEGIN SELECT RAISE(ABORT, 'closings is append-only'); END;
CREATE TRIGGER account_closings_refuses_update BEFORE UPDATE ON account_closings WHEN EXISTS (SELECT 1 FROM closings WHERE closings.month_us = OLD.month_us) BEGIN SELECT RAISE(ABORT, 'account_closings is append-only'); END;
CREATE TRIGGER account_closings_refuses_delete BEFORE DELETE ON account_closings WHEN EXISTS (SELECT 1 FROM closings WHERE closings.month_us = OLD.month_us) BEGIN SELECT RAISE(ABORT, 'account_closings is append-only'); END;
CREATE TRIGGER owed_changes_refuses_update BEFORE UPDATE ON owed_changes  BEGIN SELECT RAISE(ABORT, 'owed_changes is append-only'); END;
CREATE TRIGGER owed_changes_refuses_delete BEFORE DELETE ON owed_changes  BEGIN SELECT RAISE(ABORT, 'owed_changes is append-only'); END;
CREATE TRIGGER ledger_refuses_delete BEFORE DELETE ON ledger WHEN OLD.recorded_at_us >= (SELECT ledger_pruned_before_us FROM retention) BEGIN SELECT RAISE(ABORT, 'ledger is append-only'); END;
CREATE VIEW alembic_version AS SELECT json_extract('{}', 'this database was migrated by a newer Legato: start that, or restore a backup (docs/upgrade.md)') AS version_num;
COMMIT;
