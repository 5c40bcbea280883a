CREATE SCHEMA auth;
CREATE TABLE auth.accounts (
    account_id text NOT NULL,
    name text NOT NULL,
    created_at_us bigint NOT NULL,
    preferred_class text NOT NULL,
    requests_per_minute bigint,
    tokens_per_minute bigint,
    concurrent_requests bigint,
    suspended_at_us bigint,
    search boolean DEFAULT true NOT NULL,
    memory boolean DEFAULT true NOT NULL,
    attachments boolean DEFAULT true NOT NULL
);
CREATE TABLE auth.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE auth.api_keys (
    key_id text NOT NULL,
    account_id text NOT NULL,
    name text NOT NULL,
    scopes text NOT NULL,
    digest bytea NOT NULL,
    pepper_version integer NOT NULL,
    created_at_us bigint NOT NULL,
    expires_at_us bigint,
    revoked_at_us bigint,
    requests_per_minute bigint,
    tokens_per_minute bigint,
    concurrent_requests bigint,
    last_used_hour_us bigint
);
CREATE TABLE auth.epoch (
    row_no integer NOT NULL,
    value bigint NOT NULL,
    forgotten bigint NOT NULL,
    peppers text DEFAULT ''::text NOT NULL,
    CONSTRAINT epoch_has_one_row CHECK ((row_no = 1))
);
CREATE TABLE auth.key_changes (
    epoch bigint NOT NULL,
    key_id text NOT NULL
);
INSERT INTO auth.accounts VALUES ('acct_n49xjz9cpyyvyp5y', 'Ada', 1794959583577490, 'forte', 600, NULL, NULL, NULL, true, true, true);
INSERT INTO auth.accounts VALUES ('acct_x2rv8nnkyngb8y8i', 'Bob', 1794959587909439, 'forte', NULL, NULL, NULL, 1794959589175390, true, true, true);
INSERT INTO auth.alembic_version VALUES ('0004');
INSERT INTO auth.api_keys VALUES ('key_FvxXhIx8RjLqMxnB', 'acct_n49xjz9cpyyvyp5y', 'revoked', '', '\x867076dbd62a2085e8203846b7cff785d591c20fe38a4d3db5c809685aa32dfd', 1, 1794959594359642, NULL, 1794959596174189, NULL, NULL, NULL, NULL);
INSERT INTO auth.api_keys VALUES ('key_eTdeaV8c2YJEb1Pa', 'acct_x2rv8nnkyngb8y8i', '', '', '\x5b4f64d31546c0a2a73b3b7e997ed04bcc936c24f5201acaa0d8ad76ae15cb0c', 1, 1794959601836279, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO auth.api_keys VALUES ('key_qoXPlMtclcxVWzhZ', 'acct_n49xjz9cpyyvyp5y', 'used', '', '\x4749c8b038372f478183cef26c97f3f42b0d76413e9b7661247ecb5db585a8ee', 1, 1794959592930628, NULL, NULL, NULL, NULL, 20, 1794956400000000);
INSERT INTO auth.epoch VALUES (1, 6, 2, '1:ba2dddafe92f1eca');
INSERT INTO auth.key_changes VALUES (5, 'key_FvxXhIx8RjLqMxnB');
INSERT INTO auth.key_changes VALUES (6, 'key_qoXPlMtclcxVWzhZ');
ALTER TABLE ONLY auth.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (account_id);
ALTER TABLE ONLY auth.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY auth.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY auth.epoch
    ADD CONSTRAINT epoch_pkey PRIMARY KEY (row_no);
ALTER TABLE ONLY auth.key_changes
    ADD CONSTRAINT key_changes_pkey PRIMARY KEY (epoch, key_id);
CREATE INDEX accounts_by_age ON auth.accounts USING btree (created_at_us, account_id);
CREATE INDEX api_keys_by_age ON auth.api_keys USING btree (account_id, created_at_us, key_id);
ALTER TABLE ONLY auth.api_keys
    ADD CONSTRAINT api_keys_account_id_fkey FOREIGN KEY (account_id) REFERENCES auth.accounts(account_id);
