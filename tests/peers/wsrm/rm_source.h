// A source of one-way messages. @RM@ is wsrm.h (WS-RM 1.1) or wsrm5.h (1.0).
#import "soap12.h"
#import "@RM@"

//gsoap ns service name: rmpeer
//gsoap ns service namespace: urn:rmpeer
//gsoap ns service method-header-part: notify wsa5__MessageID
//gsoap ns service method-header-part: notify wsa5__To
//gsoap ns service method-header-part: notify wsa5__Action
//gsoap ns service method-header-part: notify wsrm__Sequence
//gsoap ns service method-header-part: notify wsrm__AckRequested
//gsoap ns service method-header-part: notify wsrm__SequenceAcknowledgement
//gsoap ns service method-action: notify urn:rmpeer/notify
int ns__notify(int index, void);
