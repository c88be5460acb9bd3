-- purpose: rule 10. Ready work implies a wake token: every writing script ends with `bell`.
-- defines: bell
local MOST_TOKENS = 64
local limited
if LIMITED or MAY_BEGIN then
  -- How many jobs can start by the queue's own limits, of so many that are ready.
  function limited(wanted)
    -- A slot that was freed lets a job start that waited for it.
    if freed > 0 and LIMITS.limit > 0 and call('EXISTS', ROTA and RING or P .. 'pending') == 1 then wanted = wanted + freed end --!guard bell-freed
    if wanted > 0 and shut(LIMITS, ACTIVE) then wanted = 0 end --!guard bell-shut
    if wanted > 0 and LIMITS.limit > 0 then wanted = math.min(wanted, LIMITS.limit - call('ZCARD', ACTIVE)) end --!bound bell-limit
    return wanted
  end
end
local function bell()
  if ROTA then settle_rota() end
  if PAUSED then return end --!guard bell-paused
  local wanted = made_ready
  if LIMITS then wanted = limited(wanted) end
  if heads then
    for _, head in pairs(heads) do
      if head.soonest < head.before then wanted = wanted + 1 end --!guard bell-head
    end
  end
  if wanted == 0 then return end
  local room = MOST_TOKENS - call('LLEN', P .. 'wake') --!bound wake
  if wanted > room then wanted = room end
  if wanted <= 0 then return end
  local tokens = {}
  for i = 1, wanted do
    tokens[i] = '1'
  end
  call('LPUSH', P .. 'wake', unpack(tokens)) --!write wake
end
