CREATE SCHEMA router;
CREATE TABLE router.schema_version (
    version_num character varying(32) NOT NULL,
    oldest_num text DEFAULT ''::text NOT NULL,
    release text DEFAULT ''::text NOT NULL
);
CREATE VIEW router.alembic_version AS
 SELECT version_num
   FROM router.schema_version;
CREATE TABLE router.attachments (
    attachment_id text NOT NULL,
    account_id text NOT NULL,
    created_at_us bigint NOT NULL,
    kind text NOT NULL,
    size_bytes bigint NOT NULL,
    pages integer NOT NULL,
    passages integer NOT NULL,
    key_version integer NOT NULL,
    sealed_name bytea NOT NULL
);
CREATE TABLE router.notes (
    note_id text NOT NULL,
    account_id text NOT NULL,
    created_at_us bigint NOT NULL,
    tokens integer NOT NULL,
    key_version integer NOT NULL,
    sealed_text bytea NOT NULL
);
CREATE TABLE router.passages (
    passage_id bigint NOT NULL,
    attachment_id text NOT NULL,
    page integer NOT NULL,
    tokens integer NOT NULL,
    key_version integer NOT NULL,
    sealed_text bytea NOT NULL
);
CREATE TABLE router.postings (
    account_id text NOT NULL,
    word bytea NOT NULL,
    passage_id bigint NOT NULL
);
INSERT INTO router.attachments VALUES ('att_b65046022d83f459', 'acct_v6dsnynjuq4krhrg', 1794988273071857, 'text', 28, 1, 1, 1, '\xb718d017cb66c8b153a0f34167d4743f835d564d5aac154d070b643261f24393e28c8adb');
INSERT INTO router.notes VALUES ('note_2fccf4374de6d9be', 'acct_v6dsnynjuq4krhrg', 1794988271221514, 9, 1, '\xb1c67ed1cf58eaad2f0bdd06fb91daaa049dfd69d1be9ef6ac4da7eee857414c0868ccb0e52e60a134b925b8befb63fd21');
INSERT INTO router.passages VALUES (2279705211821363667, 'att_b65046022d83f459', 0, 6, 1, '\x3bb0d01ee2839e2f84bb21ff40500f0f7a0272b8e0a1d1d22b208a95a1477ba0c27952f5db9e9054469bf38c4bac9a36016e427aecff9e');
INSERT INTO router.postings VALUES ('acct_v6dsnynjuq4krhrg', '\x9cc2173dd39bbec421de597dd85783b1', 2279705211821363667);
INSERT INTO router.postings VALUES ('acct_v6dsnynjuq4krhrg', '\x646f7b78b30d7fb316a8e99de4bc5075', 2279705211821363667);
INSERT INTO router.postings VALUES ('acct_v6dsnynjuq4krhrg', '\x858e6537a8486861c31fa97bf0d31296', 2279705211821363667);
INSERT INTO router.schema_version VALUES ('0001', '', '0.2.0');
ALTER TABLE ONLY router.attachments
    ADD CONSTRAINT attachments_pkey PRIMARY KEY (attachment_id);
ALTER TABLE ONLY router.notes
    ADD CONSTRAINT notes_pkey PRIMARY KEY (note_id);
ALTER TABLE ONLY router.passages
    ADD CONSTRAINT passages_pkey PRIMARY KEY (passage_id);
ALTER TABLE ONLY router.postings
    ADD CONSTRAINT postings_pkey PRIMARY KEY (account_id, word, passage_id);
ALTER TABLE ONLY router.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version_num);
CREATE INDEX attachments_by_age ON router.attachments USING btree (account_id, created_at_us, attachment_id);
CREATE INDEX notes_by_age ON router.notes USING btree (account_id, created_at_us, note_id);
CREATE INDEX passages_by_attachment ON router.passages USING btree (attachment_id);
CREATE INDEX postings_by_passage ON router.postings USING btree (passage_id);
ALTER TABLE ONLY router.passages
    ADD CONSTRAINT passages_attachment_id_fkey FOREIGN KEY (attachment_id) REFERENCES router.attachments(attachment_id);
ALTER TABLE ONLY router.postings
    ADD CONSTRAINT postings_passage_id_fkey FOREIGN KEY (passage_id) REFERENCES router.passages(passage_id);
