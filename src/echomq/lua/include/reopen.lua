-- purpose: closed lanes whose moment has come are back on the ring.
-- defines: reopen
-- Answers how many were handled; the bound was used up if that is `bound`.
local function reopen(bound)
  local names = call('ZRANGE', CLOSED, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, bound) --!bound reopen
  for _, name in ipairs(names) do
    touch(name) --!write due-closed
  end
  settle_rota()
  return #names
end
