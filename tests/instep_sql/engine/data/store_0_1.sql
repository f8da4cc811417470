BEGIN TRANSACTION;
CREATE TABLE instep_audit_mark (
	audit BIGINT NOT NULL, 
	"key" TEXT NOT NULL, 
	stream_no INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	class TEXT NOT NULL, 
	token TEXT NOT NULL, 
	partition TEXT NOT NULL, 
	"offset" BIGINT NOT NULL, 
	appended_at_us BIGINT NOT NULL, 
	uuid TEXT NOT NULL, 
	ends INTEGER NOT NULL, 
	state INTEGER NOT NULL, 
	verdict TEXT NOT NULL, 
	seen TEXT NOT NULL, 
	envelope BLOB NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (audit, "key")
);
INSERT INTO "instep_audit_mark" VALUES(1700000000004000,'u1',2,'u1','NODE','t2','',2,2,'',0,1,'','',X'',X'');
CREATE TABLE instep_change (
	cursor INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	stream_no INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	class TEXT NOT NULL, 
	change TEXT NOT NULL, 
	kind SMALLINT, 
	token TEXT NOT NULL, 
	appended_at_us BIGINT NOT NULL, 
	committed_at_us BIGINT NOT NULL, 
	body BLOB NOT NULL, 
	previous BLOB
);
INSERT INTO "instep_change" VALUES(1,1,'a','NODE','created',1,'t1',1,1700000000001000,X'7B226174223A317D',NULL);
INSERT INTO "instep_change" VALUES(2,1,'b','NODE','created',1,'t2',2,1700000000001000,X'7B226174223A327D',NULL);
INSERT INTO "instep_change" VALUES(3,1,'a','NODE','updated',1,'t3',3,1700000000001000,X'7B226174223A337D',X'7B226174223A317D');
INSERT INTO "instep_change" VALUES(4,2,'u1','NODE','created',1,'t1',1,1700000000003000,X'7B2275756964223A227531222C227374617465223A7B2261646D696E223A22554E4C4F434B4544227D7D',NULL);
INSERT INTO "instep_change" VALUES(5,2,'u1','NODE','updated',1,'t2',2,1700000000003000,X'7B2275756964223A227531222C227374617465223A7B2261646D696E223A22554E4C4F434B4544227D2C22706F7274223A5B7B226C6F63616C2D6964223A2231222C227370656564223A31307D5D7D',X'7B2275756964223A227531222C227374617465223A7B2261646D696E223A22554E4C4F434B4544227D7D');
CREATE TABLE instep_ended (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	stream_no INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	uuid TEXT NOT NULL, 
	lineage INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	appended_at_us BIGINT NOT NULL, 
	UNIQUE (stream_no, "key"), 
	FOREIGN KEY(stream_no) REFERENCES instep_stream (id)
);
CREATE TABLE instep_entity (
	id INTEGER NOT NULL, 
	stream_no INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	class TEXT NOT NULL, 
	token TEXT NOT NULL, 
	partition TEXT NOT NULL, 
	"offset" BIGINT NOT NULL, 
	appended_at_us BIGINT NOT NULL, 
	lineage INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	proven SMALLINT NOT NULL, 
	uuid TEXT NOT NULL, 
	envelope BLOB NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (stream_no, "key"), 
	FOREIGN KEY(stream_no) REFERENCES instep_stream (id)
);
INSERT INTO "instep_entity" VALUES(1,1,'a','NODE','t3','',3,3,1,1,1,'',X'',X'7B226174223A337D');
INSERT INTO "instep_entity" VALUES(2,1,'b','NODE','t2','',2,2,1,1,1,'',X'',X'7B226174223A327D');
INSERT INTO "instep_entity" VALUES(3,2,'u1','NODE','t2','',2,2,1,1,1,'',X'',X'7B2275756964223A227531222C227374617465223A7B2261646D696E223A22554E4C4F434B4544227D2C22706F7274223A5B7B226C6F63616C2D6964223A2231222C227370656564223A31307D5D7D');
CREATE TABLE instep_inbox (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	sequence_no INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	number BIGINT NOT NULL, 
	stage SMALLINT NOT NULL, 
	message_id TEXT NOT NULL, 
	sender TEXT NOT NULL, 
	attributes TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	expires_at_us BIGINT NOT NULL, 
	received_at_us BIGINT NOT NULL, 
	kept_at_us BIGINT NOT NULL, 
	body BLOB NOT NULL
);
INSERT INTO "instep_inbox" VALUES(1,1,0,6,1,'thread bob#6','','{}',X'',0,1700000000000000,1795346949119127,X'7B226E756D626572223A20367D');
INSERT INTO "instep_inbox" VALUES(2,1,0,4,2,'thread bob#4','','{}',X'',0,1700000000000000,1795346949215053,X'7B226E756D626572223A20347D');
INSERT INTO "instep_inbox" VALUES(3,1,0,5,1,'thread bob#5','','{}',X'',0,1700000000000000,1795346949271762,X'7B226E756D626572223A20357D');
INSERT INTO "instep_inbox" VALUES(4,1,0,8,0,'thread bob#8','','{}',X'',0,1700000000000000,1795346949289985,X'7B226E756D626572223A20387D');
CREATE TABLE instep_lease (
	consumer TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	lease_s FLOAT NOT NULL, 
	taken_at_us BIGINT NOT NULL, 
	asked_epoch BIGINT NOT NULL, 
	PRIMARY KEY (consumer)
);
CREATE TABLE instep_message (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	sequence_no INTEGER NOT NULL, 
	number BIGINT NOT NULL, 
	message_id TEXT NOT NULL, 
	sender TEXT NOT NULL, 
	attributes TEXT NOT NULL, 
	received_at_us BIGINT NOT NULL, 
	delivered_at_us BIGINT NOT NULL, 
	body BLOB NOT NULL
);
INSERT INTO "instep_message" VALUES(1,1,1,'thread bob#1','','{}',1700000000000000,1795346949087260,X'7B226E756D626572223A20317D');
INSERT INTO "instep_message" VALUES(2,1,2,'thread bob#2','','{}',1700000000000000,1795346949099202,X'7B226E756D626572223A20327D');
INSERT INTO "instep_message" VALUES(3,1,3,'thread bob#3','','{}',1700000000000000,1795346949108958,X'7B226E756D626572223A20337D');
CREATE TABLE instep_outbox (
	id INTEGER NOT NULL, 
	stream_no INTEGER NOT NULL, 
	scope TEXT NOT NULL, 
	next_number BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (stream_no, scope), 
	FOREIGN KEY(stream_no) REFERENCES instep_stream (id)
);
INSERT INTO "instep_outbox" VALUES(1,4,'t',4);
CREATE TABLE instep_part (
	id INTEGER NOT NULL, 
	stream_no INTEGER NOT NULL, 
	part_key TEXT NOT NULL, 
	entity_key TEXT NOT NULL, 
	token TEXT NOT NULL, 
	partition TEXT NOT NULL, 
	"offset" BIGINT NOT NULL, 
	appended_at_us BIGINT NOT NULL, 
	lineage INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (stream_no, part_key), 
	FOREIGN KEY(stream_no) REFERENCES instep_stream (id)
);
INSERT INTO "instep_part" VALUES(1,2,'u1','u1','t1','',1,1,1,1,X'7B2275756964223A227531222C227374617465223A7B2261646D696E223A22554E4C4F434B4544227D7D');
INSERT INTO "instep_part" VALUES(2,2,'u1/port/1','u1','t2','',2,2,1,1,X'7B2275756964223A227531222C22706F7274223A5B7B226C6F63616C2D6964223A2231222C227370656564223A31307D5D7D');
INSERT INTO "instep_part" VALUES(3,3,'u1','u1','t1','',1,1,1,1,X'7B2275756964223A227531222C227374617465223A7B2261646D696E223A22554E4C4F434B4544227D7D');
INSERT INTO "instep_part" VALUES(4,3,'u1/port/1','u1','t2','',2,2,1,1,X'7B2275756964223A227531222C22706F7274223A5B7B226C6F63616C2D6964223A2231222C227370656564223A31307D5D7D');
CREATE TABLE instep_quarantine (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	stream_no INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	token TEXT, 
	received_at_us BIGINT NOT NULL, 
	replayed_at_us BIGINT, 
	digest BLOB, 
	raw BLOB NOT NULL, scope TEXT, inbox_no BIGINT, 
	UNIQUE (stream_no, digest), 
	FOREIGN KEY(stream_no) REFERENCES instep_stream (id)
);
INSERT INTO "instep_quarantine" VALUES(1,1,'not JSON','t2x',1700000000001000,NULL,X'D87FFA773A8F446F1905013DD7C5E6EC',X'7B6E6F74206A736F6E',NULL,NULL);
INSERT INTO "instep_quarantine" VALUES(2,4,'the handler failed: ValueError: no such auction','4 thread bob#4',1700000000000000,NULL,NULL,X'7B226E756D626572223A20347D','thread bob',2);
CREATE TABLE instep_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT instep_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "instep_schema" VALUES('0005');
CREATE TABLE instep_seen (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	sequence_no INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	seen_at_us BIGINT NOT NULL, 
	UNIQUE (sequence_no, digest)
);
CREATE TABLE instep_sent (
	outbox_no INTEGER NOT NULL, 
	number BIGINT NOT NULL, 
	entry TEXT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (outbox_no, number)
);
INSERT INTO "instep_sent" VALUES(1,3,'{"number":3,"id":"m3","size_bytes":4,"waiting_for":["bob"],"sent_count":1,"sent_at_us":3,"sendings":{}}',X'626F64792033');
CREATE TABLE instep_sequence (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	stream_no INTEGER NOT NULL, 
	scope TEXT NOT NULL, 
	state TEXT NOT NULL, 
	due_us BIGINT, 
	deliver_at_us BIGINT, 
	attempts INTEGER NOT NULL, 
	blocked SMALLINT NOT NULL, 
	error TEXT NOT NULL, 
	updated_at_us BIGINT NOT NULL, 
	UNIQUE (stream_no, scope), 
	FOREIGN KEY(stream_no) REFERENCES instep_stream (id)
);
INSERT INTO "instep_sequence" VALUES(1,4,'thread bob','{"next_number":7,"received":[[1,8],[6,8]],"cancelled":[[],[]],"faulted":[[],[]],"acted_at_us":1795346949182371,"recent":[[1,""],[2,""],[3,""],[6,""],[4,""],[5,""],[8,""]]}',1795346954289985,NULL,0,1,'the handler failed: ValueError: no such auction',1700000000000000);
CREATE TABLE instep_stream (
	id INTEGER NOT NULL, 
	consumer TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	position TEXT NOT NULL, 
	token TEXT, 
	appended_at_us BIGINT NOT NULL, 
	phase TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	ordinal BIGINT NOT NULL, 
	records BIGINT NOT NULL, 
	info TEXT NOT NULL, 
	deviations TEXT NOT NULL, 
	journal TEXT NOT NULL, 
	updated_at_us BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (consumer, stream)
);
INSERT INTO "instep_stream" VALUES(1,'east','s1','{"token":"t3","offsets":{"":3},"appended_us":{},"appended_at_us":1700000000000003,"ordinal":1,"records":3,"phase":"aligned","attempt":1,"attempt_started_at_us":0,"reference":{"token":null,"appended_at_us":0,"offsets":{},"appended_us":{}},"lineage":1,"origin":"","known_to_us":0,"recent":"","sweep_cursor":0,"owes_baseline":false}','t3',1700000000000003,'aligned',1,1,3,'{"classes": [], "clock_offset_us": 0, "compaction_delay_s": null, "details": {}, "endpoint": "", "id": "s1", "kind": "tapi", "mode": "log", "origin": "wss://a", "readable": [], "record_retention_s": null, "record_strategy": "WHOLE_ENTITY_ON_CHANGE", "storage_strategy": "COMPACTED", "tombstone_retention_s": Infinity, "uuid": ""}','{"offset-backwards": 2}','previous',1700000000001000);
INSERT INTO "instep_stream" VALUES(2,'east','s2','{"token":"t2","offsets":{"":2},"appended_us":{},"appended_at_us":1700000000000000,"ordinal":1,"records":2,"phase":"aligned","attempt":1,"attempt_started_at_us":0,"reference":{"token":null,"appended_at_us":0,"offsets":{},"appended_us":{}},"lineage":1,"origin":"","known_to_us":0,"recent":"","sweep_cursor":0,"owes_baseline":false}','t2',1700000000000000,'aligned',1,1,2,'{"classes": [], "clock_offset_us": 0, "compaction_delay_s": null, "details": {}, "endpoint": "", "id": "s2", "kind": "tapi", "mode": "log", "origin": "wss://a", "readable": [], "record_retention_s": null, "record_strategy": "CHANGE_ONLY", "storage_strategy": "COMPACTED", "tombstone_retention_s": null, "uuid": ""}','{}','previous',1700000000003000);
INSERT INTO "instep_stream" VALUES(3,'east','s2 audited at 1700000000004000','{"token":null,"offsets":{},"appended_us":{},"appended_at_us":0,"ordinal":0,"records":0,"phase":"unaligned","attempt":0,"attempt_started_at_us":0,"reference":{"token":null,"appended_at_us":0,"offsets":{},"appended_us":{}},"lineage":0,"origin":"","known_to_us":0,"recent":"","sweep_cursor":0,"owes_baseline":false}',NULL,0,'receiving',0,0,0,'{}','{}','previous',1700000000004000);
INSERT INTO "instep_stream" VALUES(4,'east','messages','{}','2248ef12d6704740b26efe02da5725d9',0,'receiving',0,2609656848595614265,7,'{"id": "messages", "kind": "spoken"}','{}','off',1700000000009000);
CREATE INDEX instep_entity_uuid ON instep_entity (stream_no, uuid) WHERE uuid <> '';
CREATE VIEW instep_entities AS
    SELECT s.consumer, s.stream, e.key, e.class, e.uuid, e.token, strftime('%Y-%m-%dT%H:%M:%S', e.appended_at_us / 1000000, 'unixepoch') || printf('.%06dZ', e.appended_at_us % 1000000) AS appended_at,
           e.attempt, e.proven, CAST(e.envelope AS TEXT) AS envelope, CAST(e.body AS TEXT) AS body
    FROM instep_entity AS e JOIN instep_stream AS s ON s.id = e.stream_no;
CREATE INDEX instep_part_entity ON instep_part (stream_no, entity_key);
CREATE INDEX instep_ended_uuid ON instep_ended (stream_no, uuid);
CREATE INDEX instep_sequence_due ON instep_sequence (stream_no, due_us) WHERE due_us IS NOT NULL;
CREATE INDEX instep_sequence_deliver ON instep_sequence (stream_no, deliver_at_us) WHERE deliver_at_us IS NOT NULL;
CREATE INDEX instep_sequence_blocked ON instep_sequence (stream_no) WHERE blocked = 1;
CREATE UNIQUE INDEX instep_inbox_number ON instep_inbox (sequence_no, epoch, number) WHERE number >= 0;
CREATE INDEX instep_inbox_stage ON instep_inbox (sequence_no, stage, epoch, number, id);
CREATE VIEW instep_messages AS
    SELECT m.id AS cursor, s.consumer, q.scope AS stream, m.number, m.message_id AS id, m.sender,
           strftime('%Y-%m-%dT%H:%M:%S', m.received_at_us / 1000000, 'unixepoch') || printf('.%06dZ', m.received_at_us % 1000000) AS received_at, strftime('%Y-%m-%dT%H:%M:%S', m.delivered_at_us / 1000000, 'unixepoch') || printf('.%06dZ', m.delivered_at_us % 1000000) AS delivered_at, CAST(m.body AS TEXT) AS body
    FROM instep_message AS m
    JOIN instep_sequence AS q ON q.id = m.sequence_no
    JOIN instep_stream AS s ON s.id = q.stream_no;
CREATE INDEX instep_audit_mark_state ON instep_audit_mark (audit, state);
CREATE INDEX instep_audit_mark_uuid ON instep_audit_mark (audit, uuid) WHERE uuid <> '';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('instep_change',5);
INSERT INTO "sqlite_sequence" VALUES('instep_quarantine',2);
INSERT INTO "sqlite_sequence" VALUES('instep_sequence',7);
INSERT INTO "sqlite_sequence" VALUES('instep_message',3);
INSERT INTO "sqlite_sequence" VALUES('instep_inbox',4);
COMMIT;
