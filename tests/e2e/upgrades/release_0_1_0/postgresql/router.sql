CREATE SCHEMA router;
CREATE TABLE router.alembic_version (
    version_num character varying(32) NOT NULL
);
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
INSERT INTO router.alembic_version VALUES ('0001');
INSERT INTO router.attachments VALUES ('att_0f80e4f411dfdd80', 'acct_n49xjz9cpyyvyp5y', 1794959607913458, 'text', 28, 1, 1, 1, '\xb203446571a33ba41f3f431e555bfd6e481ee3c267931a113c06d74beed70707a308ef79');
INSERT INTO router.notes VALUES ('note_da0395b173c74009', 'acct_n49xjz9cpyyvyp5y', 1794959604809931, 9, 1, '\x496fb1bf90b61859945d110e93faa99d96106c2ae71036ad1fd9e71d97a19f2fa6b75366115ee8b84f1a0fa001db1e343f');
INSERT INTO router.passages VALUES (1183363030385462493, 'att_0f80e4f411dfdd80', 0, 6, 1, '\x545e84bf44bf2e06b13cb9737e2f756e82276e1a9d8cb5749d74da859ab72a2d5f6704a1836d8f4681bc788ab6741b3c188147a326a1ef');
INSERT INTO router.postings VALUES ('acct_n49xjz9cpyyvyp5y', '\x81e48e2c065002a3be02accefccfaa7a', 1183363030385462493);
INSERT INTO router.postings VALUES ('acct_n49xjz9cpyyvyp5y', '\xb5e649e1944521d36bebf6004f2491cd', 1183363030385462493);
INSERT INTO router.postings VALUES ('acct_n49xjz9cpyyvyp5y', '\x3746b7c7a95c0e5142e98754b875f23e', 1183363030385462493);
ALTER TABLE ONLY router.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY router.attachments
    ADD CONSTRAINT attachments_pkey PRIMARY KEY (attachment_id);
ALTER TABLE ONLY router.notes
    ADD CONSTRAINT notes_pkey PRIMARY KEY (note_id);
ALTER TABLE ONLY router.passages
    ADD CONSTRAINT passages_pkey PRIMARY KEY (passage_id);
ALTER TABLE ONLY router.postings
    ADD CONSTRAINT postings_pkey PRIMARY KEY (account_id, word, passage_id);
CREATE INDEX attachments_by_age ON router.attachments USING btree (account_id, created_at_us, attachment_id);
CREATE INDEX notes_by_age ON router.notes USING btree (account_id, created_at_us, note_id);
CREATE INDEX passages_by_attachment ON router.passages USING btree (attachment_id);
CREATE INDEX postings_by_passage ON router.postings USING btree (passage_id);
ALTER TABLE ONLY router.passages
    ADD CONSTRAINT passages_attachment_id_fkey FOREIGN KEY (attachment_id) REFERENCES router.attachments(attachment_id);
ALTER TABLE ONLY router.postings
    ADD CONSTRAINT postings_passage_id_fkey FOREIGN KEY (passage_id) REFERENCES router.passages(passage_id);
