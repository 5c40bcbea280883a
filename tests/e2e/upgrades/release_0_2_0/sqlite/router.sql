BEGIN TRANSACTION;
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
INSERT INTO "attachments" VALUES('att_77bc4b77ae32a0f8','acct_xuxv6r6c4in3ghxb',1794988201453401,'text',28,1,1,1,X'1B614139A4C503AF9E40C3A763600CFC4A1C15994175634FBD343273E6C326FE15B20266');
CREATE TABLE notes (
	note_id TEXT NOT NULL, 
	account_id TEXT NOT NULL, 
	created_at_us BIGINT NOT NULL, 
	tokens INTEGER NOT NULL, 
	key_version INTEGER NOT NULL, 
	sealed_text BLOB NOT NULL, 
	PRIMARY KEY (note_id)
);
INSERT INTO "notes" VALUES('note_071e15f5d4736755','acct_xuxv6r6c4in3ghxb',1794988194544709,9,1,X'8DAF1A6575213DB399A178D447B2E8AB2AFE6BACD4F21A5DABDD3F01F9CC983DA36ED5D2BFE9ADEADE402DDDAEAEE11523');
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
INSERT INTO "passages" VALUES(4292302392977304722,'att_77bc4b77ae32a0f8',0,6,1,X'C9535003A38C1CFD3F5986FFCB25C5C177D622DD08EE00F65C70818EA52F96AFD78DF2227B11820FE282AABB5CD3BFDB75688E7FC9D586');
CREATE TABLE postings (
	account_id TEXT NOT NULL, 
	word BLOB NOT NULL, 
	passage_id BIGINT NOT NULL, 
	PRIMARY KEY (account_id, word, passage_id), 
	FOREIGN KEY(passage_id) REFERENCES passages (passage_id)
)
 WITHOUT ROWID

;
INSERT INTO "postings" VALUES('acct_xuxv6r6c4in3ghxb',X'3B20C2E260FB06336CEDA78E0864537C',4292302392977304722);
INSERT INTO "postings" VALUES('acct_xuxv6r6c4in3ghxb',X'D2B14EFDAEEF888BC3657DBC0BC255DF',4292302392977304722);
INSERT INTO "postings" VALUES('acct_xuxv6r6c4in3ghxb',X'F5E8B08BB19BE740710CDD8D9C928660',4292302392977304722);
CREATE TABLE schema_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY, oldest_num TEXT NOT NULL DEFAULT '', release TEXT NOT NULL DEFAULT '');
INSERT INTO "schema_version" VALUES('0001','','0.2.0');
CREATE INDEX notes_by_age ON notes (account_id, created_at_us, note_id);
CREATE INDEX attachments_by_age ON attachments (account_id, created_at_us, attachment_id);
CREATE INDEX passages_by_attachment ON passages (attachment_id);
CREATE INDEX postings_by_passage ON postings (passage_id);
CREATE VIEW alembic_version AS SELECT version_num FROM schema_version;
COMMIT;
