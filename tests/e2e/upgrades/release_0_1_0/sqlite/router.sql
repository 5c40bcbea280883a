BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE attachments (
	attachment_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	pages INTEGER NOT NULL, 
	passages INTEGER NOT NULL, 
	key_version INTEGER NOT NULL, 
	sealed_name BLOB NOT NULL, 
	PRIMARY KEY (attachment_id)
);
INSERT INTO "attachments" VALUES('att_63f8a68282a2f6ad','acct_2yecy5tskq25kvjm',1794959554253075,'text',28,1,1,1,X'27808B12C5D8AAC79B5B8922796422339DC37BD4053F1097FF9F576EF09FC05D001E7A02');
CREATE TABLE notes (
	note_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	tokens INTEGER NOT NULL, 
	key_version INTEGER NOT NULL, 
	sealed_text BLOB NOT NULL, 
	PRIMARY KEY (note_id)
);
INSERT INTO "notes" VALUES('note_7690d43ccd1fd298','acct_2yecy5tskq25kvjm',1794959552798794,9,1,X'949AC9613922673589A15BF5E55727B6A504E582290F599CB083E3BE1CB1B5E3F2899EFE650E6E42F4CBD2C41F02C3BC3A');
CREATE TABLE passages (
	passage_id BIGINT NOT NULL, 
	attachment_id TEXT NOT NULL, 
	page INTEGER NOT NULL, 
	tokens INTEGER NOT NULL, 
	key_version INTEGER NOT NULL, 
	sealed_text BLOB NOT NULL, 
	PRIMARY KEY (passage_id), 
	FOREIGN KEY(attachment_id) REFERENCES attachments (attachment_id)
);
INSERT INTO "passages" VALUES(2935384215813404595,'att_63f8a68282a2f6ad',0,6,1,X'E3800D15207E1EC36C595D80E73268A35BF5559AE4A336F1DD049230819B3AE1A5532C07D17A2C03B0942DAE6784B791372DD7E26108DE');
CREATE TABLE postings (
	account_id TEXT NOT NULL, 
	word BLOB NOT NULL, 
	passage_id BIGINT NOT NULL, 
	PRIMARY KEY (account_id, word, passage_id), 
	FOREIGN KEY(passage_id) REFERENCES passages (passage_id)
)
 WITHOUT ROWID

;
INSERT INTO "postings" VALUES('acct_2yecy5tskq25kvjm',X'50B86259D65555F4996F745485E2B2AD',2935384215813404595);
INSERT INTO "postings" VALUES('acct_2yecy5tskq25kvjm',X'E5D62B33D6AB8A9CB49FDB7F5D637763',2935384215813404595);
INSERT INTO "postings" VALUES('acct_2yecy5tskq25kvjm',X'FE699ACBCB85D5983B0CFBDB27A6BB98',2935384215813404595);
CREATE INDEX notes_by_age ON notes (account_id, created_at_us, note_id);
CREATE INDEX attachments_by_age ON attachments (account_id, created_at_us, attachment_id);
CREATE INDEX passages_by_attachment ON passages (attachment_id);
CREATE INDEX postings_by_passage ON postings (passage_id);
COMMIT;
