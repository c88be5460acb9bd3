-- purpose: rule 6. A client's last call of a verb and its reply are kept, so that a resend is answered and not run again.
-- defines: ONCE, recall, remember
local ONCE = P .. 'once:' .. CLIENT .. ':' .. VERB
-- Returns the kept reply of this very call, or nil if the call is new, and an error if a later call has run already.
local function recall()
  if NUMBER == 0 then return nil end
  local kept = call('GET', ONCE)
  if not kept then return nil end
  local number, reply = cmsgpack.unpack(kept)
  if number == NUMBER then return reply end --!guard replay
  if number > NUMBER then --!guard old-call
    return nil, redis.error_reply('EMQSTALE call ' .. NUMBER .. ' is older than the last call ' .. number)
  end
  return nil
end
local function remember(reply)
  if NUMBER > 0 then call('SET', ONCE, cmsgpack.pack(NUMBER, reply), 'EX', 3600) end --!write once
end
