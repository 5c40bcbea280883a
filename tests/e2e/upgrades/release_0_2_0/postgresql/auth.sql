CREATE SCHEMA auth;
CREATE FUNCTION auth.refuse_older_release() RETURNS text
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'this database was migrated by a newer Legato: start that, or restore a backup (docs/upgrade.md)' USING ERRCODE = 'insufficient_privilege'; END $$;
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
    attachments boolean DEFAULT true NOT NULL,
    allowed_classes text
);
CREATE VIEW auth.alembic_version AS
 SELECT auth.refuse_older_release() AS version_num;
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
    last_used_hour_us bigint,
    created_by text DEFAULT ''::text NOT NULL,
    replaces_key_id text,
    form_id text,
    playground_user_id text,
    allowed_classes text,
    expiry_noted_days integer
);
CREATE TABLE auth.audit_events (
    event_no bigint NOT NULL,
    occurred_at_us bigint NOT NULL,
    action text NOT NULL,
    user_id text NOT NULL,
    account_id text NOT NULL,
    object_id text NOT NULL,
    session_id text NOT NULL,
    network text NOT NULL,
    outcome text NOT NULL,
    pepper_version integer NOT NULL,
    previous_code bytea NOT NULL,
    code bytea NOT NULL
);
CREATE TABLE auth.audit_head (
    row_no integer NOT NULL,
    event_no bigint NOT NULL,
    code bytea NOT NULL,
    pruned_no bigint DEFAULT '0'::bigint NOT NULL,
    pruned_pepper_version integer DEFAULT 0 NOT NULL,
    pruned_code bytea,
    CONSTRAINT audit_head_has_one_row CHECK ((row_no = 1))
);
CREATE TABLE auth.challenges (
    challenge_id text NOT NULL,
    user_id text,
    challenge bytea NOT NULL,
    origin text NOT NULL,
    expires_at_us bigint NOT NULL,
    kind text DEFAULT 'passkey'::text NOT NULL
);
CREATE TABLE auth.epoch (
    row_no integer NOT NULL,
    value bigint NOT NULL,
    forgotten bigint NOT NULL,
    peppers text DEFAULT ''::text NOT NULL,
    maintenance_message text,
    maintenance_retry_after_s integer,
    maintenance_started_at_us bigint,
    CONSTRAINT epoch_has_one_row CHECK ((row_no = 1))
);
CREATE TABLE auth.invitations (
    invitation_id text NOT NULL,
    digest bytea NOT NULL,
    account_id text NOT NULL,
    email text NOT NULL,
    role integer NOT NULL,
    invited_by text NOT NULL,
    created_at_us bigint NOT NULL,
    expires_at_us bigint NOT NULL
);
CREATE TABLE auth.key_changes (
    epoch bigint NOT NULL,
    key_id text NOT NULL
);
CREATE TABLE auth.key_networks (
    key_id text NOT NULL,
    digest bytea NOT NULL,
    pepper_version integer NOT NULL,
    first_used_at_us bigint NOT NULL,
    last_used_at_us bigint NOT NULL
);
CREATE TABLE auth.memberships (
    account_id text NOT NULL,
    user_id text NOT NULL,
    role integer NOT NULL,
    joined_at_us bigint NOT NULL,
    is_mailed boolean DEFAULT true NOT NULL
);
CREATE TABLE auth.muted_notices (
    account_id text NOT NULL,
    kind text NOT NULL
);
CREATE TABLE auth.notice_deliveries (
    delivery_id text NOT NULL,
    notice_id text NOT NULL,
    channel text NOT NULL,
    recipient_id text NOT NULL,
    state text NOT NULL,
    attempts integer NOT NULL,
    failure text NOT NULL,
    attempted_at_us bigint,
    next_attempt_at_us bigint NOT NULL
);
CREATE TABLE auth.notices (
    notice_id text NOT NULL,
    account_id text NOT NULL,
    kind text NOT NULL,
    key_id text NOT NULL,
    body text NOT NULL,
    created_at_us bigint NOT NULL
);
CREATE TABLE auth.oidc_identities (
    identity_id text NOT NULL,
    user_id text NOT NULL,
    issuer text NOT NULL,
    subject text NOT NULL,
    created_at_us bigint NOT NULL,
    last_used_hour_us bigint
);
CREATE TABLE auth.passkeys (
    passkey_id text NOT NULL,
    user_id text NOT NULL,
    credential_id bytea NOT NULL,
    credential bytea NOT NULL,
    sign_count bigint NOT NULL,
    rp_id text NOT NULL,
    name text NOT NULL,
    is_backed_up boolean NOT NULL,
    created_at_us bigint NOT NULL,
    last_used_hour_us bigint
);
CREATE TABLE auth.passwords (
    user_id text NOT NULL,
    hash text NOT NULL,
    set_at_us bigint NOT NULL
);
CREATE TABLE auth.playground_tokens (
    token_id text NOT NULL,
    digest bytea NOT NULL,
    pepper_version integer NOT NULL,
    key_id text NOT NULL,
    session_id text NOT NULL,
    created_at_us bigint NOT NULL,
    expires_at_us bigint NOT NULL
);
CREATE TABLE auth.recorded_changes (
    change_id text NOT NULL,
    recorded_at_us bigint NOT NULL
);
CREATE TABLE auth.recovery_codes (
    digest bytea NOT NULL,
    user_id text NOT NULL,
    created_at_us bigint NOT NULL
);
CREATE TABLE auth.schema_version (
    version_num character varying(32) NOT NULL,
    oldest_num text DEFAULT ''::text NOT NULL,
    release text DEFAULT ''::text NOT NULL
);
CREATE TABLE auth.sessions (
    session_id text NOT NULL,
    digest bytea NOT NULL,
    previous_digest bytea,
    previous_until_us bigint,
    replace_due boolean NOT NULL,
    user_id text NOT NULL,
    created_at_us bigint NOT NULL,
    authenticated_at_us bigint NOT NULL,
    last_seen_us bigint NOT NULL,
    network text NOT NULL,
    browser text NOT NULL,
    method text NOT NULL
);
CREATE TABLE auth.sign_in_links (
    user_id text NOT NULL,
    digest bytea NOT NULL,
    expires_at_us bigint NOT NULL
);
CREATE TABLE auth.sign_in_rate_limits (
    name text NOT NULL,
    full_at_ns bigint NOT NULL
);
CREATE TABLE auth.totp (
    user_id text NOT NULL,
    secret bytea NOT NULL,
    last_step bigint NOT NULL,
    set_at_us bigint NOT NULL
);
CREATE TABLE auth.users (
    user_id text NOT NULL,
    name text NOT NULL,
    email text NOT NULL,
    created_at_us bigint NOT NULL,
    is_operator boolean NOT NULL,
    disabled_at_us bigint,
    last_seen_hour_us bigint
);
CREATE TABLE auth.webhooks (
    webhook_id text NOT NULL,
    account_id text NOT NULL,
    url text NOT NULL,
    secret text NOT NULL,
    created_at_us bigint NOT NULL
);
INSERT INTO auth.accounts VALUES ('acct_v6dsnynjuq4krhrg', 'Ada', 1794988250654635, 'forte', 600, NULL, NULL, NULL, true, true, true, NULL);
INSERT INTO auth.accounts VALUES ('acct_z6fcraavewauza7k', 'Bob', 1794988255558940, 'forte', NULL, NULL, NULL, 1794988257829020, true, true, true, NULL);
INSERT INTO auth.api_keys VALUES ('key_wQVx4f24qt0Lcg6M', 'acct_v6dsnynjuq4krhrg', 'revoked', '', '\x51413fff1b0eb484b6921220e2188fc0c7e8dcabb4fbf8f5bb3e7e7b272c3bb3', 1, 1794988264653789, NULL, 1794988266172602, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO auth.api_keys VALUES ('key_OnemyKx7dTOfrAlV', 'acct_z6fcraavewauza7k', '', '', '\xab6d3c538cd591ee752da99f3c3c32655cb1fa690e66517a75fafcca1f0198fc', 1, 1794988269886275, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO auth.api_keys VALUES ('key_0qDbbWnVU16FnR4p', 'acct_v6dsnynjuq4krhrg', 'used', '', '\x1a7116ef0234316a542cf4772a68b9f5fc643bcd811a00a91c030a8ae708ecf6', 1, 1794988262767245, NULL, NULL, NULL, NULL, 20, 1794985200000000, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO auth.audit_events VALUES (1, 1794988250664429, 'account.created', '', 'acct_v6dsnynjuq4krhrg', '', '', '', 'done', 1, '\x', '\xb78ab8b655f5939903fce2fcb8282b048b57bfc27431038f1aee6c06f5f2dc85');
INSERT INTO auth.audit_events VALUES (2, 1794988252473980, 'account.updated', '', 'acct_v6dsnynjuq4krhrg', 'acct_v6dsnynjuq4krhrg', '', '', 'done', 1, '\xb78ab8b655f5939903fce2fcb8282b048b57bfc27431038f1aee6c06f5f2dc85', '\x9bfbc9be40939a4f69d64ad0cfb3fadc5b1288eb571e016f3017c76d3a0103f3');
INSERT INTO auth.audit_events VALUES (3, 1794988255561177, 'account.created', '', 'acct_z6fcraavewauza7k', '', '', '', 'done', 1, '\x9bfbc9be40939a4f69d64ad0cfb3fadc5b1288eb571e016f3017c76d3a0103f3', '\x9c74533fe20231c6e305ec43d70c9416ef42b5454a0ca9b608ea976f4d8f3f03');
INSERT INTO auth.audit_events VALUES (4, 1794988257845906, 'account.suspended', '', 'acct_z6fcraavewauza7k', 'acct_z6fcraavewauza7k', '', '', 'done', 1, '\x9c74533fe20231c6e305ec43d70c9416ef42b5454a0ca9b608ea976f4d8f3f03', '\x820012ee999212c32c0ade6b7200dab23e3c01f5c68e43ac48392ce3380cef23');
INSERT INTO auth.audit_events VALUES (5, 1794988262775248, 'key.created', '', 'acct_v6dsnynjuq4krhrg', 'key_0qDbbWnVU16FnR4p', '', '', 'done', 1, '\x820012ee999212c32c0ade6b7200dab23e3c01f5c68e43ac48392ce3380cef23', '\xecd14de8e958e327543fb9f77b09e15894f150264793e3dde4afd3a16be7c60c');
INSERT INTO auth.audit_events VALUES (6, 1794988264748568, 'key.created', '', 'acct_v6dsnynjuq4krhrg', 'key_wQVx4f24qt0Lcg6M', '', '', 'done', 1, '\xecd14de8e958e327543fb9f77b09e15894f150264793e3dde4afd3a16be7c60c', '\xe8a3415641f5c889ef1f23d7a8fb14bf5cc81b3d42bdad2002a036a1d194e8e6');
INSERT INTO auth.audit_events VALUES (7, 1794988266187426, 'key.revoked', '', 'acct_v6dsnynjuq4krhrg', 'key_wQVx4f24qt0Lcg6M', '', '', 'done', 1, '\xe8a3415641f5c889ef1f23d7a8fb14bf5cc81b3d42bdad2002a036a1d194e8e6', '\x83c423430adadc49037a7a938e397e218c53df1331d62e41e2e8fdd8c6b05b40');
INSERT INTO auth.audit_events VALUES (8, 1794988268006139, 'key.updated', '', 'acct_v6dsnynjuq4krhrg', 'key_0qDbbWnVU16FnR4p', '', '', 'done', 1, '\x83c423430adadc49037a7a938e397e218c53df1331d62e41e2e8fdd8c6b05b40', '\x9fa346b33c54d374c1f7848f307cbbb0aac6827dbb1b3e6396916a1f7098aaa2');
INSERT INTO auth.audit_events VALUES (9, 1794988269891148, 'key.created', '', 'acct_z6fcraavewauza7k', 'key_OnemyKx7dTOfrAlV', '', '', 'done', 1, '\x9fa346b33c54d374c1f7848f307cbbb0aac6827dbb1b3e6396916a1f7098aaa2', '\x14965f6b02d62eda84cf60a10653af7012b183d3dc8575b14813e636de203bd2');
INSERT INTO auth.audit_head VALUES (1, 9, '\x14965f6b02d62eda84cf60a10653af7012b183d3dc8575b14813e636de203bd2', 0, 0, NULL);
INSERT INTO auth.epoch VALUES (1, 6, 2, '1:ba2dddafe92f1eca', NULL, NULL, NULL);
INSERT INTO auth.key_changes VALUES (5, 'key_wQVx4f24qt0Lcg6M');
INSERT INTO auth.key_changes VALUES (6, 'key_0qDbbWnVU16FnR4p');
INSERT INTO auth.schema_version VALUES ('0013', '0013', '0.2.0');
ALTER TABLE ONLY auth.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (account_id);
ALTER TABLE ONLY auth.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY auth.audit_events
    ADD CONSTRAINT audit_events_pkey PRIMARY KEY (event_no);
ALTER TABLE ONLY auth.audit_head
    ADD CONSTRAINT audit_head_pkey PRIMARY KEY (row_no);
ALTER TABLE ONLY auth.challenges
    ADD CONSTRAINT challenges_pkey PRIMARY KEY (challenge_id);
ALTER TABLE ONLY auth.epoch
    ADD CONSTRAINT epoch_pkey PRIMARY KEY (row_no);
ALTER TABLE ONLY auth.invitations
    ADD CONSTRAINT invitations_pkey PRIMARY KEY (invitation_id);
ALTER TABLE ONLY auth.key_changes
    ADD CONSTRAINT key_changes_pkey PRIMARY KEY (epoch, key_id);
ALTER TABLE ONLY auth.key_networks
    ADD CONSTRAINT key_networks_pkey PRIMARY KEY (key_id, digest);
ALTER TABLE ONLY auth.memberships
    ADD CONSTRAINT memberships_pkey PRIMARY KEY (account_id, user_id);
ALTER TABLE ONLY auth.muted_notices
    ADD CONSTRAINT muted_notices_pkey PRIMARY KEY (account_id, kind);
ALTER TABLE ONLY auth.notice_deliveries
    ADD CONSTRAINT notice_deliveries_pkey PRIMARY KEY (delivery_id);
ALTER TABLE ONLY auth.notices
    ADD CONSTRAINT notices_pkey PRIMARY KEY (notice_id);
ALTER TABLE ONLY auth.oidc_identities
    ADD CONSTRAINT oidc_identities_pkey PRIMARY KEY (identity_id);
ALTER TABLE ONLY auth.passkeys
    ADD CONSTRAINT passkeys_pkey PRIMARY KEY (passkey_id);
ALTER TABLE ONLY auth.passwords
    ADD CONSTRAINT passwords_pkey PRIMARY KEY (user_id);
ALTER TABLE ONLY auth.playground_tokens
    ADD CONSTRAINT playground_tokens_pkey PRIMARY KEY (token_id);
ALTER TABLE ONLY auth.recorded_changes
    ADD CONSTRAINT recorded_changes_pkey PRIMARY KEY (change_id);
ALTER TABLE ONLY auth.recovery_codes
    ADD CONSTRAINT recovery_codes_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY auth.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version_num);
ALTER TABLE ONLY auth.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (session_id);
ALTER TABLE ONLY auth.sign_in_links
    ADD CONSTRAINT sign_in_links_pkey PRIMARY KEY (user_id);
ALTER TABLE ONLY auth.sign_in_rate_limits
    ADD CONSTRAINT sign_in_rate_limits_pkey PRIMARY KEY (name);
ALTER TABLE ONLY auth.totp
    ADD CONSTRAINT totp_pkey PRIMARY KEY (user_id);
ALTER TABLE ONLY auth.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (user_id);
ALTER TABLE ONLY auth.webhooks
    ADD CONSTRAINT webhooks_pkey PRIMARY KEY (webhook_id);
CREATE INDEX accounts_by_age ON auth.accounts USING btree (created_at_us, account_id);
CREATE INDEX api_keys_by_age ON auth.api_keys USING btree (account_id, created_at_us, key_id);
CREATE INDEX api_keys_by_expiry ON auth.api_keys USING btree (expires_at_us);
CREATE UNIQUE INDEX api_keys_by_form ON auth.api_keys USING btree (account_id, form_id);
CREATE UNIQUE INDEX api_keys_by_playground ON auth.api_keys USING btree (account_id, playground_user_id);
CREATE INDEX api_keys_by_replaced ON auth.api_keys USING btree (replaces_key_id);
CREATE INDEX audit_events_by_account ON auth.audit_events USING btree (account_id, event_no);
CREATE INDEX audit_events_by_time ON auth.audit_events USING btree (occurred_at_us);
CREATE INDEX audit_events_by_user ON auth.audit_events USING btree (user_id, event_no);
CREATE INDEX challenges_by_expiry ON auth.challenges USING btree (expires_at_us);
CREATE INDEX invitations_by_account ON auth.invitations USING btree (account_id, created_at_us);
CREATE UNIQUE INDEX invitations_by_digest ON auth.invitations USING btree (digest);
CREATE INDEX invitations_by_email ON auth.invitations USING btree (email, created_at_us);
CREATE INDEX key_networks_by_use ON auth.key_networks USING btree (last_used_at_us);
CREATE INDEX memberships_by_user ON auth.memberships USING btree (user_id, joined_at_us);
CREATE INDEX notice_deliveries_by_notice ON auth.notice_deliveries USING btree (notice_id, delivery_id);
CREATE INDEX notice_deliveries_by_recipient ON auth.notice_deliveries USING btree (state, recipient_id, next_attempt_at_us);
CREATE INDEX notices_by_account ON auth.notices USING btree (account_id, created_at_us);
CREATE INDEX notices_by_age ON auth.notices USING btree (created_at_us);
CREATE UNIQUE INDEX oidc_identities_by_subject ON auth.oidc_identities USING btree (issuer, subject);
CREATE INDEX oidc_identities_by_user ON auth.oidc_identities USING btree (user_id, created_at_us);
CREATE UNIQUE INDEX passkeys_by_credential ON auth.passkeys USING btree (credential_id);
CREATE INDEX passkeys_by_user ON auth.passkeys USING btree (user_id, created_at_us);
CREATE INDEX playground_tokens_by_key ON auth.playground_tokens USING btree (key_id, expires_at_us);
CREATE INDEX playground_tokens_by_session ON auth.playground_tokens USING btree (session_id, created_at_us);
CREATE INDEX recorded_changes_by_time ON auth.recorded_changes USING btree (recorded_at_us);
CREATE INDEX recovery_codes_by_user ON auth.recovery_codes USING btree (user_id);
CREATE INDEX sessions_by_age ON auth.sessions USING btree (created_at_us);
CREATE UNIQUE INDEX sessions_by_digest ON auth.sessions USING btree (digest);
CREATE INDEX sessions_by_previous_digest ON auth.sessions USING btree (previous_digest);
CREATE INDEX sessions_by_user ON auth.sessions USING btree (user_id, created_at_us);
CREATE UNIQUE INDEX sign_in_links_by_digest ON auth.sign_in_links USING btree (digest);
CREATE INDEX sign_in_rate_limits_by_time ON auth.sign_in_rate_limits USING btree (full_at_ns);
CREATE INDEX users_by_age ON auth.users USING btree (created_at_us, user_id);
CREATE INDEX users_by_email ON auth.users USING btree (email);
CREATE INDEX webhooks_by_account ON auth.webhooks USING btree (account_id, created_at_us);
ALTER TABLE ONLY auth.api_keys
    ADD CONSTRAINT api_keys_account_id_fkey FOREIGN KEY (account_id) REFERENCES auth.accounts(account_id);
ALTER TABLE ONLY auth.invitations
    ADD CONSTRAINT invitations_account_id_fkey FOREIGN KEY (account_id) REFERENCES auth.accounts(account_id);
ALTER TABLE ONLY auth.memberships
    ADD CONSTRAINT memberships_account_id_fkey FOREIGN KEY (account_id) REFERENCES auth.accounts(account_id);
ALTER TABLE ONLY auth.memberships
    ADD CONSTRAINT memberships_user_id_fkey FOREIGN KEY (user_id) REFERENCES auth.users(user_id);
ALTER TABLE ONLY auth.muted_notices
    ADD CONSTRAINT muted_notices_account_id_fkey FOREIGN KEY (account_id) REFERENCES auth.accounts(account_id);
ALTER TABLE ONLY auth.notice_deliveries
    ADD CONSTRAINT notice_deliveries_notice_id_fkey FOREIGN KEY (notice_id) REFERENCES auth.notices(notice_id);
ALTER TABLE ONLY auth.notices
    ADD CONSTRAINT notices_account_id_fkey FOREIGN KEY (account_id) REFERENCES auth.accounts(account_id);
ALTER TABLE ONLY auth.oidc_identities
    ADD CONSTRAINT oidc_identities_user_id_fkey FOREIGN KEY (user_id) REFERENCES auth.users(user_id);
ALTER TABLE ONLY auth.passkeys
    ADD CONSTRAINT passkeys_user_id_fkey FOREIGN KEY (user_id) REFERENCES auth.users(user_id);
ALTER TABLE ONLY auth.passwords
    ADD CONSTRAINT passwords_user_id_fkey FOREIGN KEY (user_id) REFERENCES auth.users(user_id);
ALTER TABLE ONLY auth.playground_tokens
    ADD CONSTRAINT playground_tokens_key_id_fkey FOREIGN KEY (key_id) REFERENCES auth.api_keys(key_id);
ALTER TABLE ONLY auth.playground_tokens
    ADD CONSTRAINT playground_tokens_session_id_fkey FOREIGN KEY (session_id) REFERENCES auth.sessions(session_id);
ALTER TABLE ONLY auth.recovery_codes
    ADD CONSTRAINT recovery_codes_user_id_fkey FOREIGN KEY (user_id) REFERENCES auth.users(user_id);
ALTER TABLE ONLY auth.sessions
    ADD CONSTRAINT sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES auth.users(user_id);
ALTER TABLE ONLY auth.sign_in_links
    ADD CONSTRAINT sign_in_links_user_id_fkey FOREIGN KEY (user_id) REFERENCES auth.users(user_id);
ALTER TABLE ONLY auth.totp
    ADD CONSTRAINT totp_user_id_fkey FOREIGN KEY (user_id) REFERENCES auth.users(user_id);
ALTER TABLE ONLY auth.webhooks
    ADD CONSTRAINT webhooks_account_id_fkey FOREIGN KEY (account_id) REFERENCES auth.accounts(account_id);
