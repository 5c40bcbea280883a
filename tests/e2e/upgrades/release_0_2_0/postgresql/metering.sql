CREATE SCHEMA metering;
CREATE FUNCTION metering.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$;
CREATE FUNCTION metering.refuse_change_of_closed() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'metering'
    AS $$ BEGIN IF EXISTS (SELECT 1 FROM closings WHERE closings.month_us = OLD.month_us) THEN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END IF; IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$;
CREATE FUNCTION metering.refuse_older_release() RETURNS text
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'this database was migrated by a newer Legato: start that, or restore a backup (docs/upgrade.md)' USING ERRCODE = 'insufficient_privilege'; END $$;
CREATE FUNCTION metering.refuse_older_writer() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'metering'
    AS $$ BEGIN IF EXISTS (SELECT 1 FROM accounts WHERE account_id = NEW.account_id AND (has_spend_limits OR owed_nanos > 0)) THEN RAISE EXCEPTION 'this metering is older than the spend limits or owed credit of account %: replace it by the newer release', NEW.account_id; END IF; RETURN NEW; END $$;
CREATE FUNCTION metering.usage_hours_count_delete() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'metering'
    AS $$ BEGIN INSERT INTO account_hours (account_id, hour_us, class_id, requests, prompt_tokens, cached_tokens, completion_tokens, cost_nanos, loss_nanos) VALUES (OLD.account_id, OLD.hour_us, OLD.class_id, -OLD.requests, -OLD.prompt_tokens, -OLD.cached_tokens, -OLD.completion_tokens, -OLD.cost_nanos, -OLD.loss_nanos) ON CONFLICT (account_id, hour_us, class_id) DO UPDATE SET requests = account_hours.requests + excluded.requests, prompt_tokens = account_hours.prompt_tokens + excluded.prompt_tokens, cached_tokens = account_hours.cached_tokens + excluded.cached_tokens, completion_tokens = account_hours.completion_tokens + excluded.completion_tokens, cost_nanos = account_hours.cost_nanos + excluded.cost_nanos, loss_nanos = account_hours.loss_nanos + excluded.loss_nanos; RETURN NULL; END $$;
CREATE FUNCTION metering.usage_hours_count_insert() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'metering'
    AS $$ BEGIN INSERT INTO account_hours (account_id, hour_us, class_id, requests, prompt_tokens, cached_tokens, completion_tokens, cost_nanos, loss_nanos) VALUES (NEW.account_id, NEW.hour_us, NEW.class_id, NEW.requests, NEW.prompt_tokens, NEW.cached_tokens, NEW.completion_tokens, NEW.cost_nanos, NEW.loss_nanos) ON CONFLICT (account_id, hour_us, class_id) DO UPDATE SET requests = account_hours.requests + excluded.requests, prompt_tokens = account_hours.prompt_tokens + excluded.prompt_tokens, cached_tokens = account_hours.cached_tokens + excluded.cached_tokens, completion_tokens = account_hours.completion_tokens + excluded.completion_tokens, cost_nanos = account_hours.cost_nanos + excluded.cost_nanos, loss_nanos = account_hours.loss_nanos + excluded.loss_nanos; RETURN NULL; END $$;
CREATE FUNCTION metering.usage_hours_count_update() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'metering'
    AS $$ BEGIN INSERT INTO account_hours (account_id, hour_us, class_id, requests, prompt_tokens, cached_tokens, completion_tokens, cost_nanos, loss_nanos) VALUES (NEW.account_id, NEW.hour_us, NEW.class_id, NEW.requests - OLD.requests, NEW.prompt_tokens - OLD.prompt_tokens, NEW.cached_tokens - OLD.cached_tokens, NEW.completion_tokens - OLD.completion_tokens, NEW.cost_nanos - OLD.cost_nanos, NEW.loss_nanos - OLD.loss_nanos) ON CONFLICT (account_id, hour_us, class_id) DO UPDATE SET requests = account_hours.requests + excluded.requests, prompt_tokens = account_hours.prompt_tokens + excluded.prompt_tokens, cached_tokens = account_hours.cached_tokens + excluded.cached_tokens, completion_tokens = account_hours.completion_tokens + excluded.completion_tokens, cost_nanos = account_hours.cost_nanos + excluded.cost_nanos, loss_nanos = account_hours.loss_nanos + excluded.loss_nanos; RETURN NULL; END $$;
CREATE TABLE metering.account_changes (
    change_id text NOT NULL,
    action text NOT NULL,
    account_id text NOT NULL,
    key_id text NOT NULL,
    user_id text NOT NULL,
    session_id text NOT NULL,
    recorded_at_us bigint NOT NULL
);
CREATE TABLE metering.account_closings (
    month_us bigint NOT NULL,
    account_id text NOT NULL,
    entries bigint NOT NULL,
    granted_nanos bigint NOT NULL,
    adjusted_nanos bigint NOT NULL,
    charged_nanos bigint NOT NULL,
    loss_nanos bigint NOT NULL,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    balance_nanos bigint NOT NULL,
    total_entries bigint NOT NULL,
    total_credited_nanos bigint NOT NULL,
    total_charged_nanos bigint NOT NULL
);
CREATE TABLE metering.account_hours (
    account_id text NOT NULL,
    hour_us bigint NOT NULL,
    class_id text NOT NULL,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cost_nanos bigint NOT NULL,
    loss_nanos bigint NOT NULL
);
CREATE TABLE metering.accounts (
    account_id text NOT NULL,
    balance_nanos bigint NOT NULL,
    held_nanos bigint NOT NULL,
    has_spend_limits boolean DEFAULT false NOT NULL,
    low_balance_nanos bigint,
    owed_nanos bigint DEFAULT 0 NOT NULL,
    CONSTRAINT account_is_covered CHECK (((0 <= held_nanos) AND (held_nanos <= balance_nanos))),
    CONSTRAINT owed_is_not_negative CHECK ((owed_nanos >= 0))
);
CREATE VIEW metering.alembic_version AS
 SELECT metering.refuse_older_release() AS version_num;
CREATE TABLE metering.claims (
    account_id text NOT NULL,
    key_digest bytea NOT NULL,
    body_digest bytea NOT NULL,
    request_id text NOT NULL,
    claimed_at_us bigint NOT NULL
);
CREATE TABLE metering.closings (
    month_us bigint NOT NULL,
    ends_us bigint NOT NULL,
    entries bigint NOT NULL,
    customer_nanos bigint NOT NULL,
    revenue_nanos bigint NOT NULL,
    loss_nanos bigint NOT NULL,
    external_nanos bigint NOT NULL,
    accounts bigint NOT NULL,
    balance_nanos bigint NOT NULL,
    closed_at_us bigint NOT NULL,
    entries_hash text NOT NULL,
    accounts_hash text NOT NULL,
    previous_hash text NOT NULL,
    closing_hash text NOT NULL
);
CREATE TABLE metering.holds (
    request_id text NOT NULL,
    account_id text NOT NULL,
    key_id text NOT NULL,
    class_id text NOT NULL,
    state text NOT NULL,
    amount_nanos bigint NOT NULL,
    price_version bigint NOT NULL,
    deadline_at_us bigint,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    charged_nanos bigint NOT NULL,
    loss_nanos bigint NOT NULL,
    loss_bound_nanos bigint NOT NULL,
    basis text,
    "end" text,
    counted_hour_us bigint,
    reserved_at_us bigint,
    resolved_at_us bigint,
    CONSTRAINT hold_has_its_price CHECK (((state = 'void'::text) OR (price_version > 0))),
    CONSTRAINT hold_is_not_negative CHECK (((amount_nanos >= 0) AND (charged_nanos >= 0) AND (loss_nanos >= 0) AND (loss_bound_nanos >= 0))),
    CONSTRAINT hold_state_is_known CHECK (((state = 'held'::text) OR (state = 'settled'::text) OR (state = 'void'::text) OR (state = 'swept'::text)))
);
CREATE TABLE metering.ledger (
    entry_id bigint NOT NULL,
    kind text NOT NULL,
    request_id text NOT NULL,
    account_id text NOT NULL,
    customer_nanos bigint NOT NULL,
    recorded_at_us bigint NOT NULL,
    revenue_nanos bigint NOT NULL,
    loss_nanos bigint NOT NULL,
    external_nanos bigint NOT NULL,
    key_id text NOT NULL,
    class_id text NOT NULL,
    price_version bigint NOT NULL,
    hour_us bigint NOT NULL,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    basis text,
    "end" text,
    reason text,
    CONSTRAINT ledger_charge_is_whole CHECK ((((kind <> 'charge'::text) AND (kind <> 'late_charge'::text)) OR ((key_id <> ''::text) AND (class_id <> ''::text) AND (price_version > 0) AND (hour_us > 0) AND (customer_nanos <= 0)))),
    CONSTRAINT ledger_kind_is_known CHECK (((kind = 'charge'::text) OR (kind = 'late_charge'::text) OR (kind = 'loss'::text) OR (kind = 'grant'::text) OR (kind = 'adjustment'::text))),
    CONSTRAINT ledger_legs_sum_to_zero CHECK (((((customer_nanos + revenue_nanos) + loss_nanos) + external_nanos) = 0))
)
PARTITION BY RANGE (recorded_at_us);
CREATE SEQUENCE metering.ledger_entry_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE metering.ledger_entry_id_seq OWNED BY metering.ledger.entry_id;
CREATE TABLE metering.ledger_2026_12 (
    entry_id bigint DEFAULT nextval('metering.ledger_entry_id_seq'::regclass) CONSTRAINT ledger_entry_id_not_null NOT NULL,
    kind text CONSTRAINT ledger_kind_not_null NOT NULL,
    request_id text CONSTRAINT ledger_request_id_not_null NOT NULL,
    account_id text CONSTRAINT ledger_account_id_not_null NOT NULL,
    customer_nanos bigint CONSTRAINT ledger_customer_nanos_not_null NOT NULL,
    recorded_at_us bigint CONSTRAINT ledger_recorded_at_us_not_null NOT NULL,
    revenue_nanos bigint CONSTRAINT ledger_revenue_nanos_not_null NOT NULL,
    loss_nanos bigint CONSTRAINT ledger_loss_nanos_not_null NOT NULL,
    external_nanos bigint CONSTRAINT ledger_external_nanos_not_null NOT NULL,
    key_id text CONSTRAINT ledger_key_id_not_null NOT NULL,
    class_id text CONSTRAINT ledger_class_id_not_null NOT NULL,
    price_version bigint CONSTRAINT ledger_price_version_not_null NOT NULL,
    hour_us bigint CONSTRAINT ledger_hour_us_not_null NOT NULL,
    requests bigint CONSTRAINT ledger_requests_not_null NOT NULL,
    prompt_tokens bigint CONSTRAINT ledger_prompt_tokens_not_null NOT NULL,
    cached_tokens bigint CONSTRAINT ledger_cached_tokens_not_null NOT NULL,
    completion_tokens bigint CONSTRAINT ledger_completion_tokens_not_null NOT NULL,
    basis text,
    "end" text,
    reason text,
    CONSTRAINT ledger_charge_is_whole CHECK ((((kind <> 'charge'::text) AND (kind <> 'late_charge'::text)) OR ((key_id <> ''::text) AND (class_id <> ''::text) AND (price_version > 0) AND (hour_us > 0) AND (customer_nanos <= 0)))),
    CONSTRAINT ledger_kind_is_known CHECK (((kind = 'charge'::text) OR (kind = 'late_charge'::text) OR (kind = 'loss'::text) OR (kind = 'grant'::text) OR (kind = 'adjustment'::text))),
    CONSTRAINT ledger_legs_sum_to_zero CHECK (((((customer_nanos + revenue_nanos) + loss_nanos) + external_nanos) = 0))
);
CREATE TABLE metering.ledger_2027_01 (
    entry_id bigint DEFAULT nextval('metering.ledger_entry_id_seq'::regclass) CONSTRAINT ledger_entry_id_not_null NOT NULL,
    kind text CONSTRAINT ledger_kind_not_null NOT NULL,
    request_id text CONSTRAINT ledger_request_id_not_null NOT NULL,
    account_id text CONSTRAINT ledger_account_id_not_null NOT NULL,
    customer_nanos bigint CONSTRAINT ledger_customer_nanos_not_null NOT NULL,
    recorded_at_us bigint CONSTRAINT ledger_recorded_at_us_not_null NOT NULL,
    revenue_nanos bigint CONSTRAINT ledger_revenue_nanos_not_null NOT NULL,
    loss_nanos bigint CONSTRAINT ledger_loss_nanos_not_null NOT NULL,
    external_nanos bigint CONSTRAINT ledger_external_nanos_not_null NOT NULL,
    key_id text CONSTRAINT ledger_key_id_not_null NOT NULL,
    class_id text CONSTRAINT ledger_class_id_not_null NOT NULL,
    price_version bigint CONSTRAINT ledger_price_version_not_null NOT NULL,
    hour_us bigint CONSTRAINT ledger_hour_us_not_null NOT NULL,
    requests bigint CONSTRAINT ledger_requests_not_null NOT NULL,
    prompt_tokens bigint CONSTRAINT ledger_prompt_tokens_not_null NOT NULL,
    cached_tokens bigint CONSTRAINT ledger_cached_tokens_not_null NOT NULL,
    completion_tokens bigint CONSTRAINT ledger_completion_tokens_not_null NOT NULL,
    basis text,
    "end" text,
    reason text,
    CONSTRAINT ledger_charge_is_whole CHECK ((((kind <> 'charge'::text) AND (kind <> 'late_charge'::text)) OR ((key_id <> ''::text) AND (class_id <> ''::text) AND (price_version > 0) AND (hour_us > 0) AND (customer_nanos <= 0)))),
    CONSTRAINT ledger_kind_is_known CHECK (((kind = 'charge'::text) OR (kind = 'late_charge'::text) OR (kind = 'loss'::text) OR (kind = 'grant'::text) OR (kind = 'adjustment'::text))),
    CONSTRAINT ledger_legs_sum_to_zero CHECK (((((customer_nanos + revenue_nanos) + loss_nanos) + external_nanos) = 0))
);
CREATE TABLE metering.ledger_2027_02 (
    entry_id bigint DEFAULT nextval('metering.ledger_entry_id_seq'::regclass) CONSTRAINT ledger_entry_id_not_null NOT NULL,
    kind text CONSTRAINT ledger_kind_not_null NOT NULL,
    request_id text CONSTRAINT ledger_request_id_not_null NOT NULL,
    account_id text CONSTRAINT ledger_account_id_not_null NOT NULL,
    customer_nanos bigint CONSTRAINT ledger_customer_nanos_not_null NOT NULL,
    recorded_at_us bigint CONSTRAINT ledger_recorded_at_us_not_null NOT NULL,
    revenue_nanos bigint CONSTRAINT ledger_revenue_nanos_not_null NOT NULL,
    loss_nanos bigint CONSTRAINT ledger_loss_nanos_not_null NOT NULL,
    external_nanos bigint CONSTRAINT ledger_external_nanos_not_null NOT NULL,
    key_id text CONSTRAINT ledger_key_id_not_null NOT NULL,
    class_id text CONSTRAINT ledger_class_id_not_null NOT NULL,
    price_version bigint CONSTRAINT ledger_price_version_not_null NOT NULL,
    hour_us bigint CONSTRAINT ledger_hour_us_not_null NOT NULL,
    requests bigint CONSTRAINT ledger_requests_not_null NOT NULL,
    prompt_tokens bigint CONSTRAINT ledger_prompt_tokens_not_null NOT NULL,
    cached_tokens bigint CONSTRAINT ledger_cached_tokens_not_null NOT NULL,
    completion_tokens bigint CONSTRAINT ledger_completion_tokens_not_null NOT NULL,
    basis text,
    "end" text,
    reason text,
    CONSTRAINT ledger_charge_is_whole CHECK ((((kind <> 'charge'::text) AND (kind <> 'late_charge'::text)) OR ((key_id <> ''::text) AND (class_id <> ''::text) AND (price_version > 0) AND (hour_us > 0) AND (customer_nanos <= 0)))),
    CONSTRAINT ledger_kind_is_known CHECK (((kind = 'charge'::text) OR (kind = 'late_charge'::text) OR (kind = 'loss'::text) OR (kind = 'grant'::text) OR (kind = 'adjustment'::text))),
    CONSTRAINT ledger_legs_sum_to_zero CHECK (((((customer_nanos + revenue_nanos) + loss_nanos) + external_nanos) = 0))
);
CREATE TABLE metering.ledger_first (
    entry_id bigint DEFAULT NULL CONSTRAINT ledger_entry_id_not_null NOT NULL,
    kind text CONSTRAINT ledger_kind_not_null NOT NULL,
    request_id text CONSTRAINT ledger_request_id_not_null NOT NULL,
    account_id text CONSTRAINT ledger_account_id_not_null NOT NULL,
    customer_nanos bigint CONSTRAINT ledger_customer_nanos_not_null NOT NULL,
    recorded_at_us bigint CONSTRAINT ledger_recorded_at_us_not_null NOT NULL,
    revenue_nanos bigint CONSTRAINT ledger_revenue_nanos_not_null NOT NULL,
    loss_nanos bigint CONSTRAINT ledger_loss_nanos_not_null NOT NULL,
    external_nanos bigint CONSTRAINT ledger_external_nanos_not_null NOT NULL,
    key_id text CONSTRAINT ledger_key_id_not_null NOT NULL,
    class_id text CONSTRAINT ledger_class_id_not_null NOT NULL,
    price_version bigint CONSTRAINT ledger_price_version_not_null NOT NULL,
    hour_us bigint CONSTRAINT ledger_hour_us_not_null NOT NULL,
    requests bigint CONSTRAINT ledger_requests_not_null NOT NULL,
    prompt_tokens bigint CONSTRAINT ledger_prompt_tokens_not_null NOT NULL,
    cached_tokens bigint CONSTRAINT ledger_cached_tokens_not_null NOT NULL,
    completion_tokens bigint CONSTRAINT ledger_completion_tokens_not_null NOT NULL,
    basis text,
    "end" text,
    reason text,
    CONSTRAINT ledger_charge_is_whole CHECK ((((kind <> 'charge'::text) AND (kind <> 'late_charge'::text)) OR ((key_id <> ''::text) AND (class_id <> ''::text) AND (price_version > 0) AND (hour_us > 0) AND (customer_nanos <= 0)))),
    CONSTRAINT ledger_kind_is_known CHECK (((kind = 'charge'::text) OR (kind = 'late_charge'::text) OR (kind = 'loss'::text) OR (kind = 'grant'::text) OR (kind = 'adjustment'::text))),
    CONSTRAINT ledger_legs_sum_to_zero CHECK (((((customer_nanos + revenue_nanos) + loss_nanos) + external_nanos) = 0))
);
CREATE TABLE metering.notices (
    notice_id text NOT NULL,
    kind text NOT NULL,
    account_id text NOT NULL,
    key_id text NOT NULL,
    period text NOT NULL,
    amount_nanos bigint NOT NULL,
    threshold_nanos bigint NOT NULL,
    recorded_at_us bigint NOT NULL,
    acknowledged_at_us bigint
);
CREATE TABLE metering.owed_changes (
    request_id text NOT NULL,
    account_id text NOT NULL,
    owed_nanos bigint NOT NULL,
    recorded_at_us bigint NOT NULL
);
CREATE TABLE metering.price_versions (
    version bigint NOT NULL,
    effective_from_us bigint NOT NULL
);
CREATE TABLE metering.prices (
    version bigint NOT NULL,
    class_id text NOT NULL,
    input_nanos_per_million bigint NOT NULL,
    cached_input_nanos_per_million bigint NOT NULL,
    output_nanos_per_million bigint NOT NULL,
    CONSTRAINT price_is_not_negative CHECK (((input_nanos_per_million >= 0) AND (cached_input_nanos_per_million >= 0) AND (output_nanos_per_million >= 0)))
);
CREATE TABLE metering.pruned_credits (
    kind text NOT NULL,
    request_id text NOT NULL,
    account_id text NOT NULL,
    customer_nanos bigint NOT NULL,
    recorded_at_us bigint NOT NULL,
    revenue_nanos bigint NOT NULL,
    loss_nanos bigint NOT NULL,
    external_nanos bigint NOT NULL
);
CREATE TABLE metering.retention (
    retention_id integer NOT NULL,
    lease_holder text NOT NULL,
    lease_until_us bigint NOT NULL,
    ledger_pruned_before_us bigint NOT NULL,
    usage_marked_before_us bigint NOT NULL,
    usage_summed_before_us bigint NOT NULL,
    CONSTRAINT retention_is_one_row CHECK ((retention_id = 1))
);
CREATE TABLE metering.schema_version (
    version_num character varying(32) NOT NULL,
    oldest_num text DEFAULT ''::text NOT NULL,
    release text DEFAULT ''::text NOT NULL
);
CREATE TABLE metering.spends (
    spend_id text NOT NULL,
    account_id text NOT NULL,
    key_id text NOT NULL,
    day_limit_nanos bigint,
    month_limit_nanos bigint,
    total_limit_nanos bigint,
    day_us bigint NOT NULL,
    month_us bigint NOT NULL,
    day_spent_nanos bigint NOT NULL,
    month_spent_nanos bigint NOT NULL,
    total_spent_nanos bigint NOT NULL,
    held_nanos bigint NOT NULL,
    shared_spend_id text DEFAULT ''::text NOT NULL,
    CONSTRAINT spend_is_not_negative CHECK (((held_nanos >= 0) AND (total_spent_nanos >= 0)))
);
CREATE TABLE metering.usage_hours (
    account_id text NOT NULL,
    hour_us bigint NOT NULL,
    key_id text NOT NULL,
    class_id text NOT NULL,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cost_nanos bigint NOT NULL,
    loss_nanos bigint NOT NULL
);
ALTER TABLE ONLY metering.ledger ATTACH PARTITION metering.ledger_2026_12 FOR VALUES FROM ('1796083200000000') TO ('1798761600000000');
ALTER TABLE ONLY metering.ledger ATTACH PARTITION metering.ledger_2027_01 FOR VALUES FROM ('1798761600000000') TO ('1801440000000000');
ALTER TABLE ONLY metering.ledger ATTACH PARTITION metering.ledger_2027_02 FOR VALUES FROM ('1801440000000000') TO ('1803859200000000');
ALTER TABLE ONLY metering.ledger ATTACH PARTITION metering.ledger_first FOR VALUES FROM (MINVALUE) TO ('1796083200000000');
ALTER TABLE ONLY metering.ledger ALTER COLUMN entry_id SET DEFAULT nextval('metering.ledger_entry_id_seq'::regclass);
INSERT INTO metering.account_hours VALUES ('acct_v6dsnynjuq4krhrg', 1794985200000000, 'mezzo', 3, 33, 0, 21, 7710, 0);
INSERT INTO metering.accounts VALUES ('acct_z6fcraavewauza7k', 1000000000, 0, false, NULL, 0);
INSERT INTO metering.accounts VALUES ('acct_v6dsnynjuq4krhrg', 4499992290, 874060, false, NULL, 0);
INSERT INTO metering.holds VALUES ('01a1eda36e3676d1b78342aa74e603f6', 'acct_v6dsnynjuq4krhrg', 'key_0qDbbWnVU16FnR4p', 'mezzo', 'settled', 27539020, 1, 1794991933242518, 11, 0, 7, 2570, 0, 0, 'provider', 'complete', 1794985200000000, 1794988273242518, 1794988273327429);
INSERT INTO metering.holds VALUES ('01a1eda36eaa7cab9d319a56e6e5ae7e', 'acct_v6dsnynjuq4krhrg', 'key_0qDbbWnVU16FnR4p', 'mezzo', 'settled', 27539020, 1, 1794991933327429, 11, 0, 7, 2570, 0, 0, 'provider', 'complete', 1794985200000000, 1794988273327429, 1794988273396579);
INSERT INTO metering.holds VALUES ('01a1eda36eec741ba0a3fc52341308cf', 'acct_v6dsnynjuq4krhrg', 'key_0qDbbWnVU16FnR4p', 'mezzo', 'settled', 27539020, 1, 1794991933396579, 11, 0, 7, 2570, 0, 0, 'provider', 'complete', 1794985200000000, 1794988273396579, 1794988273469253);
INSERT INTO metering.holds VALUES ('01a1eda376cb7f659b37c5827728f31f', 'acct_v6dsnynjuq4krhrg', 'key_0qDbbWnVU16FnR4p', 'mezzo', 'held', 874060, 1, 1794991935407422, 94, 0, 4, 0, 0, 0, 'checkpoint', NULL, NULL, 1794988275407422, NULL);
INSERT INTO metering.ledger_first VALUES (1, 'grant', 'grant_a82aec698053dede9dc18fc39ed9ba75', 'acct_v6dsnynjuq4krhrg', 5000000000, 1794988250676973, 0, 0, -5000000000, '', '', 0, 0, 0, 0, 0, 0, NULL, NULL, NULL);
INSERT INTO metering.ledger_first VALUES (2, 'grant', 'grant_bf310b3271ba4f0ddc9dc46218851a28', 'acct_z6fcraavewauza7k', 1000000000, 1794988255592050, 0, 0, -1000000000, '', '', 0, 0, 0, 0, 0, 0, NULL, NULL, NULL);
INSERT INTO metering.ledger_first VALUES (3, 'adjustment', 'adjustment_f2791eeefbc7d45fa45e68f0f020ee10', 'acct_v6dsnynjuq4krhrg', -500000000, 1794988260787078, 0, 0, 500000000, '', '', 0, 0, 0, 0, 0, 0, NULL, NULL, 'a test of adjustments');
INSERT INTO metering.ledger_first VALUES (4, 'charge', '01a1eda36e3676d1b78342aa74e603f6', 'acct_v6dsnynjuq4krhrg', -2570, 1794988273327429, 2570, 0, 0, 'key_0qDbbWnVU16FnR4p', 'mezzo', 1, 1794985200000000, 1, 11, 0, 7, 'provider', 'complete', NULL);
INSERT INTO metering.ledger_first VALUES (5, 'charge', '01a1eda36eaa7cab9d319a56e6e5ae7e', 'acct_v6dsnynjuq4krhrg', -2570, 1794988273396579, 2570, 0, 0, 'key_0qDbbWnVU16FnR4p', 'mezzo', 1, 1794985200000000, 1, 11, 0, 7, 'provider', 'complete', NULL);
INSERT INTO metering.ledger_first VALUES (6, 'charge', '01a1eda36eec741ba0a3fc52341308cf', 'acct_v6dsnynjuq4krhrg', -2570, 1794988273469253, 2570, 0, 0, 'key_0qDbbWnVU16FnR4p', 'mezzo', 1, 1794985200000000, 1, 11, 0, 7, 'provider', 'complete', NULL);
INSERT INTO metering.price_versions VALUES (1, 1794988244065283);
INSERT INTO metering.prices VALUES (1, 'mezzo', 100000000, 20000000, 210000000);
INSERT INTO metering.prices VALUES (1, 'forte', 1070000000, 1070000000, 3450000000);
INSERT INTO metering.prices VALUES (1, 'fortissimo', 3450000000, 3450000000, 17250000000);
INSERT INTO metering.retention VALUES (1, '1733607bcb6f4c769c8a8b09bd5ef721', 1794988874745234, 0, 0, 0);
INSERT INTO metering.schema_version VALUES ('0015', '0015', '0.2.0');
INSERT INTO metering.usage_hours VALUES ('acct_v6dsnynjuq4krhrg', 1794985200000000, 'key_0qDbbWnVU16FnR4p', 'mezzo', 3, 33, 0, 21, 7710, 0);
SELECT pg_catalog.setval('metering.ledger_entry_id_seq', 6, true);
ALTER TABLE ONLY metering.account_changes
    ADD CONSTRAINT account_changes_pkey PRIMARY KEY (change_id);
ALTER TABLE ONLY metering.account_closings
    ADD CONSTRAINT account_closings_pkey PRIMARY KEY (month_us, account_id);
ALTER TABLE ONLY metering.account_hours
    ADD CONSTRAINT account_hours_pkey PRIMARY KEY (account_id, hour_us, class_id);
ALTER TABLE ONLY metering.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (account_id);
ALTER TABLE ONLY metering.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (account_id, key_digest);
ALTER TABLE ONLY metering.closings
    ADD CONSTRAINT closings_pkey PRIMARY KEY (month_us);
ALTER TABLE ONLY metering.holds
    ADD CONSTRAINT holds_pkey PRIMARY KEY (request_id);
ALTER TABLE ONLY metering.ledger_2026_12
    ADD CONSTRAINT ledger_2026_12_pkey PRIMARY KEY (entry_id);
ALTER TABLE ONLY metering.ledger_2027_01
    ADD CONSTRAINT ledger_2027_01_pkey PRIMARY KEY (entry_id);
ALTER TABLE ONLY metering.ledger_2027_02
    ADD CONSTRAINT ledger_2027_02_pkey PRIMARY KEY (entry_id);
ALTER TABLE ONLY metering.ledger_first
    ADD CONSTRAINT ledger_first_pkey PRIMARY KEY (entry_id);
ALTER TABLE ONLY metering.notices
    ADD CONSTRAINT notices_pkey PRIMARY KEY (notice_id);
ALTER TABLE ONLY metering.owed_changes
    ADD CONSTRAINT owed_changes_pkey PRIMARY KEY (request_id);
ALTER TABLE ONLY metering.price_versions
    ADD CONSTRAINT price_versions_pkey PRIMARY KEY (version);
ALTER TABLE ONLY metering.prices
    ADD CONSTRAINT prices_pkey PRIMARY KEY (version, class_id);
ALTER TABLE ONLY metering.pruned_credits
    ADD CONSTRAINT pruned_credits_pkey PRIMARY KEY (kind, request_id);
ALTER TABLE ONLY metering.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (retention_id);
ALTER TABLE ONLY metering.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version_num);
ALTER TABLE ONLY metering.spends
    ADD CONSTRAINT spends_pkey PRIMARY KEY (spend_id);
ALTER TABLE ONLY metering.usage_hours
    ADD CONSTRAINT usage_hours_pkey PRIMARY KEY (account_id, hour_us, key_id, class_id);
CREATE INDEX claims_by_age ON metering.claims USING btree (claimed_at_us);
CREATE UNIQUE INDEX ledger_2026_12_books_once ON metering.ledger_2026_12 USING btree (kind, request_id);
CREATE INDEX ledger_by_account ON ONLY metering.ledger USING btree (account_id, entry_id);
CREATE INDEX ledger_2026_12_by_account ON metering.ledger_2026_12 USING btree (account_id, entry_id);
CREATE INDEX ledger_credits_by_account ON ONLY metering.ledger USING btree (account_id, recorded_at_us, entry_id) WHERE (kind <> 'charge'::text);
CREATE INDEX ledger_2026_12_credits_by_account ON metering.ledger_2026_12 USING btree (account_id, recorded_at_us, entry_id) WHERE (kind <> 'charge'::text);
CREATE UNIQUE INDEX ledger_2027_01_books_once ON metering.ledger_2027_01 USING btree (kind, request_id);
CREATE INDEX ledger_2027_01_by_account ON metering.ledger_2027_01 USING btree (account_id, entry_id);
CREATE INDEX ledger_2027_01_credits_by_account ON metering.ledger_2027_01 USING btree (account_id, recorded_at_us, entry_id) WHERE (kind <> 'charge'::text);
CREATE UNIQUE INDEX ledger_2027_02_books_once ON metering.ledger_2027_02 USING btree (kind, request_id);
CREATE INDEX ledger_2027_02_by_account ON metering.ledger_2027_02 USING btree (account_id, entry_id);
CREATE INDEX ledger_2027_02_credits_by_account ON metering.ledger_2027_02 USING btree (account_id, recorded_at_us, entry_id) WHERE (kind <> 'charge'::text);
CREATE UNIQUE INDEX ledger_first_books_once ON metering.ledger_first USING btree (kind, request_id);
CREATE INDEX ledger_first_by_account ON metering.ledger_first USING btree (account_id, entry_id);
CREATE INDEX ledger_first_credits_by_account ON metering.ledger_first USING btree (account_id, recorded_at_us, entry_id) WHERE (kind <> 'charge'::text);
CREATE INDEX live_holds_by_deadline ON metering.holds USING btree (deadline_at_us) WHERE (state = 'held'::text);
CREATE INDEX live_holds_by_key ON metering.holds USING btree (key_id, account_id) WHERE (state = 'held'::text);
CREATE INDEX notices_by_acknowledgement ON metering.notices USING btree (acknowledged_at_us, recorded_at_us);
CREATE INDEX owed_changes_by_account ON metering.owed_changes USING btree (account_id);
CREATE UNIQUE INDEX spends_by_account ON metering.spends USING btree (account_id, key_id);
CREATE INDEX spends_by_shared ON metering.spends USING btree (shared_spend_id) WHERE (shared_spend_id <> ''::text);
ALTER INDEX metering.ledger_by_account ATTACH PARTITION metering.ledger_2026_12_by_account;
ALTER INDEX metering.ledger_credits_by_account ATTACH PARTITION metering.ledger_2026_12_credits_by_account;
ALTER INDEX metering.ledger_by_account ATTACH PARTITION metering.ledger_2027_01_by_account;
ALTER INDEX metering.ledger_credits_by_account ATTACH PARTITION metering.ledger_2027_01_credits_by_account;
ALTER INDEX metering.ledger_by_account ATTACH PARTITION metering.ledger_2027_02_by_account;
ALTER INDEX metering.ledger_credits_by_account ATTACH PARTITION metering.ledger_2027_02_credits_by_account;
ALTER INDEX metering.ledger_by_account ATTACH PARTITION metering.ledger_first_by_account;
ALTER INDEX metering.ledger_credits_by_account ATTACH PARTITION metering.ledger_first_credits_by_account;
CREATE TRIGGER account_closings_refuses_change BEFORE DELETE OR UPDATE ON metering.account_closings FOR EACH ROW EXECUTE FUNCTION metering.refuse_change_of_closed();
CREATE TRIGGER closings_refuses_change BEFORE DELETE OR UPDATE OR TRUNCATE ON metering.closings FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER holds_refuse_older_writer BEFORE INSERT OR UPDATE ON metering.holds FOR EACH ROW WHEN ((COALESCE(current_setting('legato.writer'::text, true), ''::text) = ''::text)) EXECUTE FUNCTION metering.refuse_older_writer();
CREATE TRIGGER ledger_2026_12_refuses_change BEFORE DELETE OR UPDATE OR TRUNCATE ON metering.ledger_2026_12 FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER ledger_2027_01_refuses_change BEFORE DELETE OR UPDATE OR TRUNCATE ON metering.ledger_2027_01 FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER ledger_2027_02_refuses_change BEFORE DELETE OR UPDATE OR TRUNCATE ON metering.ledger_2027_02 FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER ledger_first_refuses_change BEFORE DELETE OR UPDATE OR TRUNCATE ON metering.ledger_first FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER ledger_refuses_change BEFORE DELETE OR UPDATE OR TRUNCATE ON metering.ledger FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER owed_changes_refuses_change BEFORE DELETE OR UPDATE OR TRUNCATE ON metering.owed_changes FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER price_versions_refuses_change BEFORE DELETE OR UPDATE OR TRUNCATE ON metering.price_versions FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER prices_refuses_change BEFORE DELETE OR UPDATE OR TRUNCATE ON metering.prices FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER usage_hours_count_delete AFTER DELETE ON metering.usage_hours FOR EACH ROW EXECUTE FUNCTION metering.usage_hours_count_delete();
CREATE TRIGGER usage_hours_count_insert AFTER INSERT ON metering.usage_hours FOR EACH ROW EXECUTE FUNCTION metering.usage_hours_count_insert();
CREATE TRIGGER usage_hours_count_update AFTER UPDATE ON metering.usage_hours FOR EACH ROW EXECUTE FUNCTION metering.usage_hours_count_update();
ALTER TABLE ONLY metering.prices
    ADD CONSTRAINT prices_version_fkey FOREIGN KEY (version) REFERENCES metering.price_versions(version);
