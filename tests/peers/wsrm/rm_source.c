/* rm_source URL COUNT: a source on gSOAP's own WS-RM plugin.

   It sends COUNT messages, many pairs of them in reverse, then sends again whatever is not
   acknowledged until nothing is left, and ends the sequence. Its way may lose and repeat anything.
   It prints the identifier and, if the end was answered, "ended". Exit code 0: all were
   acknowledged. */

#include "soapH.h"
#include "rmpeer.nsmap"
#include "plugin/wsaapi.h"
#include "plugin/wsrmapi.h"

#define ROUNDS 200
#define NOTIFY "urn:rmpeer/notify"

static int receive(struct soap *soap)
{
  if (soap_begin_recv(soap))
  {
    if (soap->error == 202 || soap->error == SOAP_NO_DATA)
      soap->error = SOAP_OK;
  }
  else if (!soap_envelope_begin_in(soap) && !soap_recv_header(soap)
        && !soap_body_begin_in(soap) && !soap_recv_fault(soap, 1)
        && !soap_body_end_in(soap) && !soap_envelope_end_in(soap))
    soap_end_recv(soap);
  return soap_closesock(soap);
}

static void notify(struct soap *soap, soap_wsrm_sequence_handle seq, ULONG64 number)
{
  if (soap_wsrm_request_num(soap, seq, soap_wsa_rand_uuid(soap), NOTIFY, number))
    exit(3);
  if (!soap_send_ns__notify(soap, soap_wsrm_to(seq), NOTIFY, (int)number))
    receive(soap);
  soap_end(soap);
}

static void ask(struct soap *soap, soap_wsrm_sequence_handle seq)
{
  const char *action = SOAP_NAMESPACE_OF_wsrm "/AckRequested";
  soap_wsa_request(soap, soap_wsa_rand_uuid(soap), seq->to, action);
  soap->header->__sizeAckRequested = 1;
  soap->header->wsrm__AckRequested =
    (struct wsrm__AckRequestedType*)soap_malloc(soap, sizeof(struct wsrm__AckRequestedType));
  soap_default_wsrm__AckRequestedType(soap, soap->header->wsrm__AckRequested);
  soap->header->wsrm__AckRequested->Identifier = soap_strdup(soap, seq->id);
  if (!soap_send___wsrm__AckRequested(soap, seq->to, action))
    receive(soap);
  soap_end(soap);
}

static int unacknowledged(soap_wsrm_sequence_handle seq)
{
  int count = 0;
  ULONG64 number;
  for (number = 1; seq->messages && number <= seq->num; number++)
    count += seq->messages[number - 1] != NULL; /* an acknowledged one is freed */
  return count;
}

int main(int argc, char **argv)
{
  struct soap *soap = soap_new1(SOAP_C_UTFSTRING);
  soap_wsrm_sequence_handle seq;
  ULONG64 number, count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
  int round;
  if (!count)
    return 2;
  soap->connect_timeout = soap->send_timeout = soap->recv_timeout = 5;
  soap_register_plugin(soap, soap_wsa);
  soap_register_plugin(soap, soap_wsrm);
  for (round = 0; soap_wsrm_create(soap, argv[1], NULL, 600000, soap_wsa_rand_uuid(soap), &seq); round++)
  {
    soap_wsrm_seq_free(soap, seq);
    soap_end(soap);
    if (round == ROUNDS)
      return 4;
  }
  printf("%s\n", seq->id);
  for (number = 1; number <= count; number++)
  {
    if (number % 3 == 1 && number < count)
    {
      notify(soap, seq, number + 1);
      notify(soap, seq, number++);
    }
    else
      notify(soap, seq, number);
  }
  for (round = 0; unacknowledged(seq) && round < ROUNDS; round++)
  {
    soap_wsrm_resend(soap, seq, 0, 0);
    soap->omode &= ~SOAP_ENC_PLAIN; /* a failed resend leaves it set */
    soap_closesock(soap);
    ask(soap, seq);
  }
  if (unacknowledged(seq))
    return 5;
  /* The plugin gives a sequence up whose end got no answer: it does not ask again. */
  if (!soap_wsrm_close(soap, seq, soap_wsa_rand_uuid(soap))
   && !soap_wsrm_terminate(soap, seq, soap_wsa_rand_uuid(soap)))
    printf("ended\n");
  soap_wsrm_seq_free(soap, seq);
  soap_destroy(soap);
  soap_end(soap);
  soap_free(soap);
  return 0;
}
